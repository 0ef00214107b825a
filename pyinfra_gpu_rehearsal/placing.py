"""The labs of this machine, as its control groups tell: each has its lab's folder written on it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from pyinfra_gpu_rehearsal.errors import LabError

NAMES = "pyinfra-gpu-"  # what the names of labs' control groups begin with
LOCK = Path("/run/pyinfra-gpu/lock")
"""Held by whoever puts a lab on this machine or takes it away."""

_FOLDER = "trusted.pyinfra-gpu"  # the attribute of a control group
_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_INOTIFY_WANTED = 8192  # a machine with systemd takes about 8, and the usual limit is 128 a user


def is_root() -> bool:
    """Tell whether this process may do anything on the machine."""
    return os.geteuid() == 0


def _mount() -> Path:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        words = line.split()
        if len(words) > 2 and words[2] == "cgroup2":
            return Path(words[1])
    raise LabError("throwaway hosts need control groups version 2 mounted, and they are not")


def lab_place(lab_id: str) -> Path:
    """Return the path of the control group for the new lab LAB_ID.

    Raises LabError where none can be made.
    """
    mount = _mount()
    if not os.access(mount, os.W_OK):
        raise LabError(f"throwaway hosts need control groups, and {mount} is read-only")
    return mount / f"{NAMES}{lab_id}"


def claim(group: Path, directory: Path) -> None:
    """Make the control group of the lab in the folder DIRECTORY."""
    group.mkdir()
    os.setxattr(group, _FOLDER, os.fsencode(directory))


def labs() -> dict[str, Path]:
    """Return the folder of each lab that is on, by its id."""
    found = {}
    for group in _mount().glob(f"{NAMES}*"):
        with suppress(OSError):  # it is just being made or removed
            folder = os.fsdecode(os.getxattr(group, _FOLDER))
            found[group.name.removeprefix(NAMES)] = Path(folder)
    return found


def orphans() -> list[str]:
    """Return the ids of the labs whose own record is gone or is another lab's (under LOCK).

    A record that is there and cannot be understood is somebody's, and no orphan's.
    """
    found = []
    for lab_id, directory in labs().items():
        try:
            known = json.loads((directory / "lab.json").read_text())["lab_id"]
        except (FileNotFoundError, NotADirectoryError):
            known = ""
        except (OSError, ValueError, TypeError, KeyError):
            continue
        if known != lab_id:
            found.append(lab_id)
    return found


def raise_inotify() -> None:
    """Let the machine have as many users of inotify as its hosts are; it stays so."""
    if int(_INOTIFY.read_text()) < _INOTIFY_WANTED and os.access(_INOTIFY, os.W_OK):
        _INOTIFY.write_text(str(_INOTIFY_WANTED))
