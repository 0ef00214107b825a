"""Who has which GPU, and who waits for one, on the whole host: names that the kernel keeps.

A claim is a Unix socket with an abstract name, so it needs no file, it is one for all users and
prefixes of a host, and it is gone with the process that has it. /proc/net/unix shows them all:
`pyinfra-gpu/DEVICE/0/RUN` has a device, and a larger number in the place of 0 waits for it, the
smallest first. Names are looked at and made while `pyinfra-gpu/lock` is held.
"""

from __future__ import annotations

import errno
import re
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .host import CPU, Site

_SEEN = re.compile(r"@pyinfra-gpu/([^/\s]+)/(\d+)/(\S+)$", re.MULTILINE)
_LONGEST = 108  # bytes of a name, as Linux has it
_DEVICE = 20  # characters of a GPU's UUID, which no two GPUs of a host share


@dataclass
class Held:
    """Devices that are ours, or waited for, as long as these sockets are open."""

    devices: list[str] = field(default_factory=list)
    sockets: list[socket.socket] = field(default_factory=list)
    number: int = 1 << 60  # behind all that wait

    def release(self) -> None:
        for each in self.sockets:
            each.close()
        self.devices, self.sockets = [], []


def holders(site: Site, devices: Sequence[str]) -> dict[str, str]:
    """Return device -> run for each that is taken."""
    runs = {device: run for device, number, run in _seen() if number == 0}
    return {each: runs[name] for each in devices if (name := _name(site, each)) in runs}


def wait(site: Site, run: str, devices: Sequence[str]) -> Held:
    """Take a place in the queue for these devices, behind all that wait."""
    with _alone():
        number = max((each for _, each, _ in _seen()), default=0) + 1
        return _taken(site, run, devices, number)


def claim(
    site: Site, run: str, devices: Sequence[str], count: int, place: Held
) -> Held | list[str]:
    """Take so many of these devices, or none: then return the runs that are before this one."""
    with _alone():
        seen, behind = _seen(), place.number
        before = {
            device: [who for name, number, who in seen if name == own and number < behind]
            for device, own in zip(devices, (_name(site, each) for each in devices), strict=True)
        }
        free = [device for device in devices if not before[device]]
        if len(free) >= count:
            return _taken(site, run, free[:count], 0)
    return [*dict.fromkeys(each for runs in before.values() for each in runs)]


def _taken(site: Site, run: str, devices: Sequence[str], number: int) -> Held:
    names = (f"{_name(site, each)}/{number:06}/{run}" for each in devices)
    sockets = [each for name in names if (each := bound(name))]
    return Held([*devices], sockets, number)


def _name(site: Site, device: str) -> str:
    # Of CPUs there is one claim for each folder of runs.
    return f"cpu-{Path(site.state).stat().st_ino}" if device == CPU else device[:_DEVICE]


def _seen() -> list[tuple[str, int, str]]:
    """Return (device, number, run) of all that have or wait for one, by their number."""
    text = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
    found = ((device, int(number), run) for device, number, run in _SEEN.findall(text))
    return sorted(found, key=lambda each: each[1:])


def bound(name: str) -> socket.socket | None:
    """Return a socket of that name; None where somebody has it."""
    own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        own.bind(f"\0pyinfra-gpu/{name}"[:_LONGEST])
    except OSError as error:
        own.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return own


def _alone() -> socket.socket:
    """Return what lets nobody else claim or wait until it is closed."""
    while (own := bound("lock")) is None:
        time.sleep(0.01)
    return own
