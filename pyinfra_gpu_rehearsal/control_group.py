"""Control groups: where a lab's processes live, how they start and how they end.

Every process of a lab lives below one control group named after the lab's id, on which its lab's
folder is written. That is the whole record needed for cleaning up: the namespaces, mounts and
network interfaces of a lab are held by these processes alone and vanish with them, however the lab
was left.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import run, until
from pyinfra_gpu_rehearsal.errors import LabError

ENTER_GROUP = Path(__file__).parent / "on_host/enter_group.sh"
NAMES = "pyinfra-gpu-"  # what the names of labs' control groups begin with
LOCK = Path("/run/pyinfra-gpu/lock")
"""Held by whoever puts a lab on this machine or takes it away."""
_FOLDER = "trusted.pyinfra-gpu"  # the attribute of a control group


@dataclass(frozen=True, slots=True)
class Group:
    """One control group, made when first used."""

    path: Path

    def sub(self, name: str) -> Group:
        """Return the group NAME below this one."""
        return Group(self.path / name)

    def processes(self) -> list[int]:
        """Return the ids of the processes in this very group; dead ones do not count."""
        try:
            text = (self.path / "cgroup.procs").read_text()
        except OSError:
            return []
        return [int(word) for word in text.split() if word != "0"]

    def populated(self) -> bool:
        """Tell whether a process lives in this group or below it."""
        try:
            return "populated 1" in (self.path / "cgroup.events").read_text()
        except OSError:
            return False

    def kill(self) -> None:
        """End every process in this group and below it at once, and wait until they are gone."""

        def ended() -> bool:
            if self.populated():
                (self.path / "cgroup.kill").write_text("1")
            return not self.populated()

        if not until(ended, 10):
            raise LabError(f"processes in {self.path} did not end within 10 s")

    def remove(self) -> None:
        """End what lives in the group, then remove it and all groups below it.

        Raises LabError where they cannot be removed.
        """

        def gone() -> bool:
            # Each time: what `start` left behind when it was killed may enter only now.
            self.kill()
            for folder, _, _ in os.walk(self.path, topdown=False):
                with suppress(OSError):  # a killed process is still being taken down by the kernel
                    Path(folder).rmdir()
            return not self.path.exists()

        if not until(gone, 10, every=0.02):
            raise LabError(f"cannot remove the control group {self.path}")

    def start(self, command: Sequence[str | Path], *, log: Path, purpose: str) -> None:
        """Start COMMAND in this group, detached from the caller, its output appended to LOG."""
        self.path.mkdir(parents=True, exist_ok=True)
        run(["sh", ENTER_GROUP, self.path, log, *command], purpose=purpose)

    def only_process(self, *, comm: str, purpose: str, timeout: float = 5) -> int:
        """Return the group's one process as soon as it runs COMM.

        Raises LabError where it does not within TIMEOUT seconds.
        """

        def only() -> int | None:
            found = self.processes()
            with suppress(OSError):
                if len(found) == 1 and Path(f"/proc/{found[0]}/comm").read_text().strip() == comm:
                    return found[0]
            return None

        if (found := until(only, timeout, every=0.002)) is None:
            raise LabError(f"{purpose} failed: it did not start within {timeout:g} s")
        return found


# -- the labs of this machine


def lab_group(lab_id: str) -> Group:
    """Return the control group of the lab LAB_ID, which need not be there.

    Raises LabError where this machine can have none.
    """
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    mount = next((Path(words[1]) for words in mounts if words[2] == "cgroup2"), None)
    if mount is None:
        raise LabError("throwaway hosts need control groups version 2 mounted, and they are not")
    if not os.access(mount, os.W_OK):
        raise LabError(f"throwaway hosts need control groups, and {mount} is read-only")
    return Group(mount / f"{NAMES}{lab_id}")


def claim(group: Group, directory: Path) -> None:
    """Make the control group of the lab in the folder DIRECTORY."""
    group.path.mkdir()
    os.setxattr(group.path, _FOLDER, os.fsencode(directory))


def labs() -> dict[str, Path]:
    """Return the folder of each lab that is on, by its id."""
    found = {}
    for path in lab_group("").path.parent.glob(f"{NAMES}*"):
        with suppress(OSError):  # it is just being made or removed
            folder = os.fsdecode(os.getxattr(path, _FOLDER))
            found[path.name.removeprefix(NAMES)] = Path(folder)
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
