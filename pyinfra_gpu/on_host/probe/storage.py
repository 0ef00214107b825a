"""Room on the disks and in shared memory, and how what is written to is mounted."""

from __future__ import annotations

import os

from .files import open_place, size
from .frame import Host, NotTold

TYPE_CHECKING = False  # to load `typing` takes as long as a fifth of the look
if TYPE_CHECKING:
    from collections.abc import Iterable

    from .frame import Facts

_IN_MEMORY = ("tmpfs", "ramfs", "rootfs")


def facts(host: Host, *, as_root: bool) -> Facts:
    """The room, in MiB."""
    asked, nvidia = host.asked, host.asked["nvidia"]
    prefix, venv, build = asked["prefix"], asked["venv"], asked["build"]
    training = asked["training"]
    boot, shm = (host.at(each) if host.is_dir(each) else "" for each in ("/boot", "/dev/shm"))
    system = () if asked["owner"] == "-" else ("/", "/etc", "/usr", "/var")
    with_boot = ("/boot",) if system and nvidia and boot else ()
    places = (prefix, venv, *filter(None, (build,)))
    written = (*places, *filter(None, (training,)), *system)
    return {
        "storage.shm_mib": lambda: _size(shm) if shm else None,
        "storage.shm_free_mib": lambda: _free(shm) if shm else None,
        "storage.usr_mib": lambda: _free(host.at("/usr")) if nvidia else None,
        "storage.var_mib": lambda: _free(host.at("/var")) if nvidia else None,
        "storage.boot_mib": lambda: _free(boot) if nvidia and boot else None,
        "storage.initrd_mib": lambda: _largest_initrd(host) if nvidia else None,
        "storage.noexec": lambda: mounted(host, "noexec", places),
        "storage.volatile": lambda: mounted(host, "memory", written),
        "storage.readonly": lambda: mounted(host, "ro", (*written, *with_boot)),
        # What is below the prefix comes last: it may be on a file server that does not answer.
        "storage.free_mib": lambda: _free(_near(prefix, as_root=as_root)),
        "storage.inodes": lambda: _inodes(host, prefix, as_root=as_root),
    }


def _near(prefix: str, *, as_root: bool) -> str:
    """Return the folder, or where it will be: the last on the way to it that is there."""
    near = prefix
    if as_root and (place := open_place(os.path.dirname(prefix))):
        near = os.path.dirname(place)
    while near.strip("/"):
        try:
            os.stat(near)
            return near
        except PermissionError:
            raise NotTold(f"no permission to look at {prefix}") from None
        except OSError:
            near = near.rpartition("/")[0]
    return "/"


def _free(folder: str) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize >> 20


def _size(folder: str) -> int:
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize >> 20


def _largest_initrd(host: Host) -> int:
    images = (host.at(f"/boot/{each}") for each in host.names("/boot", "initrd.img-"))
    return -(-max(map(size, images), default=0) // 2**20)


def _inodes(host: Host, prefix: str, *, as_root: bool) -> dict[str, int]:
    """Return what is free by place. Btrfs and others make inodes as they need them: 0 of 0."""
    places = {prefix: _near(prefix, as_root=as_root)}
    if host.asked["nvidia"]:
        places.update({each: host.at(each) for each in ("/usr", "/var")})
    found = {name: os.statvfs(folder) for name, folder in places.items()}
    return {name: each.f_ffree for name, each in found.items() if each.f_files}


def mounted(host: Host, option: str, paths: Iterable[str]) -> str | None:
    """Return where the first of their file systems that has the option is mounted.

    "memory" counts as an option of what a reboot empties.
    """
    path = "/proc/self/mounts"
    mounts = [row.split(" ") for row in (host.rows(path) if host.there(path) else ())]
    mounts = [words for words in mounts if len(words) > 3]
    if not mounts:
        raise NotTold(f"{path} may not be read")
    for path in filter(None, paths):
        longest, how = "", [""]
        for _, place, kind, options, *_ in mounts:
            if f"{path}/".startswith(f"{place.rstrip('/')}/") and len(place) >= len(longest):
                longest, how = place, ["memory" if kind in _IN_MEMORY else kind]
                how += options.split(",")
        if option in how:
            return longest
    return None
