"""Who has which GPU, and who waits for one, on the whole host: names that the kernel keeps.

A claim is a Unix socket with an abstract name, so it needs no file, it is one for all users and
prefixes of a host, and it is gone with the process that has it. /proc/net/unix shows them all:
`pyinfra-gpu/DEVICE` can be had by one only, `pyinfra-gpu/DEVICE/NUMBER/RUN` says by whom, and
with a number above 0, who waits for it and in which order.
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
    number: int = 0

    def release(self) -> None:
        for each in self.sockets:
            each.close()
        self.devices, self.sockets = [], []


def holders(site: Site, devices: Sequence[str]) -> dict[str, str]:
    """Return device -> run for each that is taken."""
    runs = {device: run for device, number, run in _seen() if number == 0}
    return {each: runs[name] for each in devices if (name := _name(site, each)) in runs}


def ahead(run: str) -> list[str]:
    """Return who waits before a run for a device that it could have."""
    seen = _seen()
    own = {device: number for device, number, each in seen if each == run and number}
    before = (each for device, number, each in seen if 0 < number < own.get(device, 0))
    return [*dict.fromkeys(before)]


def wait(site: Site, run: str, devices: Sequence[str]) -> Held:
    """Take a place in the queue for these devices, behind all that wait."""
    with _alone():
        place = Held([*devices], number=max([0, *(number for _, number, _ in _seen())]) + 1)
        named = (_bound(_name(site, each), f"{place.number:06}", run) for each in devices)
        place.sockets = [each for each in named if each is not None]
    return place


def claim(
    site: Site, run: str, devices: Sequence[str], count: int, place: Held | None
) -> Held | list[str]:
    """Take so many of these devices, or none: then return the runs that are before this one."""
    held, before = Held(), []
    with _alone():
        seen = _seen()
        for device in devices:
            name = _name(site, device)
            waiting = [
                each for other, number, each in seen
                if other == name and number and each != run
                and (place is None or number < place.number)
            ]  # fmt: skip
            own = None if waiting or len(held.devices) == count else _bound(name)
            if own is not None:
                shown = _bound(name, "0", run)
                held.devices.append(device)
                held.sockets += [own, *([shown] if shown else [])]
            before += waiting or [each for other, n, each in seen if (other, n) == (name, 0)]
        if len(held.devices) == count:
            return held
        held.release()
    return [*dict.fromkeys(before)]


def _name(site: Site, device: str) -> str:
    # Of CPUs there is one claim for each folder of runs.
    return f"cpu-{Path(site.state).stat().st_ino}" if device == CPU else device[:_DEVICE]


def _seen() -> list[tuple[str, int, str]]:
    """Return (device, number, run) of all that have or wait for one, by their number."""
    text = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
    found = ((device, int(number), run) for device, number, run in _SEEN.findall(text))
    return sorted(found, key=lambda each: each[1:])


def _bound(*parts: str) -> socket.socket | None:
    """Return a socket of that name; None where somebody has it."""
    own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        own.bind("\0pyinfra-gpu/{}".format("/".join(parts))[:_LONGEST])
    except OSError as error:
        own.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return own


def _alone() -> socket.socket:
    """Return what lets nobody else claim or wait until it is closed."""
    while (own := _bound("lock")) is None:
        time.sleep(0.01)
    return own
