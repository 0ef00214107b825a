"""Where in the machine's tree of control groups a lab may have its own.

Root makes it at the top. Another user needs a part of the tree that was handed over to them
("delegated"), as systemd does for each logged-in user's own manager, user@UID.service.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import run
from pyinfra_gpu_rehearsal.errors import LabError

NAMES = "pyinfra-gpu-"  # what the names of labs' control groups begin with

# This user becomes root in it, and its subordinate ids (/etc/subuid) become all other users.
USER_NAMESPACE = ("unshare", "--user", "--map-root-user", "--map-auto")

# The user's own manager starts what follows within the part of the tree that is the user's.
USER_SCOPE = ("systemd-run", "--user", "--scope", "--quiet", "--collect", "--")


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


def own_group(membership: str, mount: Path) -> Path:
    """Return a process's control group from the text of its /proc/PID/cgroup."""
    for line in membership.splitlines():
        if line.startswith("0::"):
            return mount / line[3:].strip().lstrip("/")
    return mount


def _writable(group: Path) -> bool:
    return os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)


def topmost_writable(group: Path, mount: Path) -> Path | None:
    """Return the highest group above or at GROUP from where on all of it is this user's."""
    found = None
    while group.is_relative_to(mount) and _writable(group):
        found = group
        group = group.parent
    return found


def lab_place(lab_id: str) -> Path:
    """Return the path of the control group for the new lab LAB_ID.

    Raises LabError where this user may not have one.
    """
    mount = cgroup_mount(Path("/proc/self/mounts").read_text())
    if mount is None:
        raise LabError("throwaway hosts need control groups version 2 mounted, and they are not")
    if is_root():
        if not _writable(mount):
            raise LabError(f"throwaway hosts need control groups, and {mount} is read-only")
        return mount / f"{NAMES}{lab_id}"
    memberships = [Path("/proc/self/cgroup").read_text()]
    if shutil.which(USER_SCOPE[0]):
        done = run([*USER_SCOPE, "cat", "/proc/self/cgroup"], purpose="", check=False, timeout=10)
        memberships.append(done.stdout)
    for membership in memberships:
        top = topmost_writable(own_group(membership, mount), mount) if membership else None
        if top is not None:
            return top / f"{NAMES}{lab_id}"
    raise LabError(
        "throwaway hosts without root need a control group of this user's own, which a login on a"
        " machine with systemd gives (`systemd-run --user --scope true` must work): use sudo"
    )


def launcher(group: Path) -> tuple[str, ...]:
    """Return the words needed before a command that is to enter GROUP.

    Only a process that is below a common group of this user's own may move there.
    """
    if is_root():
        return ()
    mount = cgroup_mount(Path("/proc/self/mounts").read_text())
    if mount is None:
        return ()
    lab = next((p for p in (group, *group.parents) if p.name.startswith(NAMES)), group)
    own = own_group(Path("/proc/self/cgroup").read_text(), mount)
    return () if own.is_relative_to(lab.parent) else USER_SCOPE


def point(link: Path, target: Path) -> None:
    """Make LINK a link to TARGET, whatever it was before."""
    if link.is_symlink() and link.readlink() == target:
        return
    link.unlink(missing_ok=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
