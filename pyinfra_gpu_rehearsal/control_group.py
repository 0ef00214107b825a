"""Control groups: where a lab's processes live, how they start and how they end.

Every process of a lab lives below one control group named after the lab's id, on which its lab's
folder is written. The network of the lab bears the same id. That is the whole record needed for
cleaning up, however the lab was left.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import LabError, run, until

NAMES = "pyinfra-gpu-"  # what the names of labs' control groups begin with
LOCK = Path("/run/pyinfra-gpu/lock")
"""Held by whoever puts a lab on this machine or takes it away."""
_FOLDER = "trusted.pyinfra-gpu"  # the attribute of a control group
# The shell enters the group before it starts anything, so that no process is ever outside.
_ENTER = 'echo 0 >"$0/cgroup.procs" && exec setsid --fork "$@" </dev/null >>"$LOG" 2>&1'


@dataclass(frozen=True, slots=True)
class Group:
    """One control group, made when first used."""

    path: Path

    def sub(self, name: str) -> Group:
        """Return the group NAME below this one."""
        return Group(self.path / name)

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
        env = {**os.environ, "LOG": str(log)}
        run(["sh", "-c", _ENTER, self.path, *command], env=env, purpose=purpose)


def lab_group(lab_id: str) -> Group:
    """Return the control group of the lab LAB_ID, which need not be there.

    Raises LabError where this machine can have none.
    """
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    mount = next((Path(words[1]) for words in mounts if words[2] == "cgroup2"), None)
    if mount is None or not os.access(mount, os.W_OK):
        found = "none is mounted" if mount is None else f"{mount} is read-only"
        raise LabError(f"throwaway hosts need control groups of version 2, and {found}")
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
