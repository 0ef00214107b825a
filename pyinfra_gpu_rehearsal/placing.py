"""Where a lab has its control group, and links of its own."""

from __future__ import annotations

import os
from pathlib import Path

from pyinfra_gpu_rehearsal.errors import LabError

NAMES = "pyinfra-gpu-"  # what the names of labs' control groups begin with


def is_root() -> bool:
    """Tell whether this process may do anything on the machine."""
    return os.geteuid() == 0


def cgroup_mount(mounts: str) -> Path | None:
    """Return where control groups version 2 are mounted, from the text of /proc/self/mounts."""
    for line in mounts.splitlines():
        words = line.split()
        if len(words) > 2 and words[2] == "cgroup2":
            return Path(words[1])
    return None


def lab_place(lab_id: str) -> Path:
    """Return the path of the control group for the new lab LAB_ID.

    Raises LabError where none can be made.
    """
    mount = cgroup_mount(Path("/proc/self/mounts").read_text())
    if mount is None:
        raise LabError("throwaway hosts need control groups version 2 mounted, and they are not")
    if not os.access(mount, os.W_OK):
        raise LabError(f"throwaway hosts need control groups, and {mount} is read-only")
    return mount / f"{NAMES}{lab_id}"


def point(link: Path, target: Path) -> None:
    """Make LINK a link to TARGET, whatever it was before."""
    if link.is_symlink() and link.readlink() == target:
        return
    link.unlink(missing_ok=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
