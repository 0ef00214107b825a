"""Room on the disks and in shared memory, and how what is written to is mounted."""

from __future__ import annotations

import os

from .files import believed, open_place
from .frame import GONE, Facts, Host, NotReported


def _mib(folder: str, blocks: str = "f_bavail") -> int:
    found = os.statvfs(folder)
    return int(getattr(found, blocks)) * found.f_frsize >> 20


def _near(host: Host) -> str:
    """Return the prefix, or where it will be: the last folder on the way to it that is there."""
    near = host.asked["prefix"]
    if host.owner.apart and (place := open_place(os.path.dirname(near))):
        near = os.path.dirname(place)
    while near.strip("/"):
        try:
            os.stat(near)
            return str(near)
        except GONE:
            near = near.rpartition("/")[0]
    return "/"


def _largest_initrd(host: Host) -> int:
    images = filter(host.is_file, host.paths("/boot", "initrd.img-"))
    largest = max((os.stat(host.at(each)).st_size for each in images), default=0)
    return -(-largest // 2**20)


def _mounted(host: Host) -> tuple[str | None, ...]:
    """Return where what a run writes is mounted read-only, and what is built noexec."""
    rows = (row.split(" ") for row in host.rows_if_any("/proc/self/mounts"))
    mounts = [(words[1], words[3].split(",")) for words in rows if len(words) > 3]
    if not mounts:
        raise NotReported("/proc/self/mounts may not be read")

    def first(option: str, paths: list[str]) -> str | None:
        for path in filter(None, paths):
            above = [e for e in mounts if f"{path}/".startswith(f"{e[0].rstrip('/')}/")]
            # Of what is mounted twice in one place the later counts.
            place, options = max(reversed(above), key=lambda e: len(e[0]), default=("", []))
            if option in options:
                return place
        return None

    ours = [host.asked[each] for each in ("prefix", "venv", "build")]
    # As root, a run writes to the system as well.
    roots = [] if host.asked["owner"] == "-" else ["/", "/etc", "/usr", "/var"]
    written = [*ours, host.asked["training"], *roots]
    # torch.compile and Triton load from /tmp what they have built.
    return first("ro", written), first("noexec", [*ours, "/tmp"])


FACTS: Facts = {
    "storage.shm_mib": lambda host: _mib(host.at("/dev/shm"), "f_blocks"),
    "storage.shm_free_mib": lambda host: _mib(host.at("/dev/shm")),
    "storage.readonly storage.noexec": _mounted,
}
NVIDIA: Facts = {
    "storage.usr_mib": lambda host: _mib(host.at("/usr")),
    "storage.var_mib": lambda host: _mib(host.at("/var")),
    "storage.boot_mib": lambda host: _mib(host.at("/boot")),
    "storage.initrd_mib": _largest_initrd,
}
"""What is looked at only where an NVIDIA driver is wanted."""
BELOW: Facts = {
    "storage.free_mib": lambda host: _mib(_near(host)),
    "smoke.stamp": lambda host: believed(host, "stamp"),
    "cuda.proof": lambda host: believed(host, "cuda_proof"),
    "libcuda.proof": lambda host: believed(host, "libcuda_proof"),
}
"""What is below the prefix, which may be on a file server that does not answer."""
