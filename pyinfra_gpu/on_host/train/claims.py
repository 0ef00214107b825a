"""Who has which GPU, and who waits for one: a lock each, which the kernel drops with its holder.

A look opens files for reading only, and takes its locks shared, so it works on a read-only disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .host import Site

_TICKET = re.compile(r"([0-9]{8})-(.+)", re.ASCII)


@dataclass
class Held:
    """Devices that are ours as long as these descriptors are open."""

    devices: list[str] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)

    def release(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.devices, self.descriptors = [], []


def holders(site: Site, devices: Sequence[str]) -> dict[str, str]:
    """Return device -> run for each that is taken."""
    paths = {device: site.claims / f"{device}.lock" for device in devices}
    return {device: _read(path) for device, path in paths.items() if is_locked(path)}


def is_locked(path: Path) -> bool:
    """Tell whether somebody has a file locked, without writing to it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def ahead(site: Site, run: str) -> list[str]:
    """Return who waited before a run for a device that it could have."""
    tickets = _tickets(site)
    own = next((each for each in tickets if each[1] == run), None)
    if own is None:
        return []
    return [name for number, name, devices in tickets if number < own[0] and devices & own[2]]


def _tickets(site: Site) -> list[tuple[int, str, frozenset[str]]]:
    """Return (number, run, devices) of those that wait; what is left of others is passed over."""
    with contextlib.suppress(FileNotFoundError):
        found = ((path, _TICKET.fullmatch(path.name)) for path in sorted(site.queue.iterdir()))
        return [
            (int(match[1]), match[2], frozenset(_read(path).split()))
            for path, match in found
            if match and is_locked(path)
        ]
    return []


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return ""


class Ticket:
    """A place in the queue, kept by a lock on a file that says for which devices."""

    def __init__(self, site: Site, run: str, devices: Sequence[str]) -> None:
        with _alone(site):
            tickets = _tickets(site)
            waits = {f"{number:08}-{name}" for number, name, _ in tickets}
            for path in site.queue.iterdir():
                if path.name not in waits:
                    path.unlink()
            self.number = max([number for number, _, _ in tickets], default=0) + 1
            self.path = site.queue / f"{self.number:08}-{run}"
            descriptor = _lock(self.path)
            if descriptor is None:
                raise OSError(f"{self.path} is taken, and its number is new")
            self._descriptor = descriptor
            os.write(descriptor, " ".join(devices).encode())

    def give_up(self) -> None:
        self.path.unlink(missing_ok=True)
        os.close(self._descriptor)


def claim(
    site: Site, run: str, devices: Sequence[str], count: int, ticket: Ticket | None
) -> Held | list[str]:
    """Take so many of these devices, or none: then return the runs that are before this one."""
    held, before = Held(), []
    with _alone(site):
        waited_for: set[str] = set()
        for number, other, theirs in _tickets(site):
            if other != run and (ticket is None or number < ticket.number):
                waited_for |= theirs
                before += [other] if theirs & {*devices} else []
        for device in devices:
            if len(held.devices) == count:
                break
            path = site.claims / f"{device}.lock"
            descriptor = None if device in waited_for else _lock(path)
            if descriptor is None:
                before += [] if device in waited_for else [_read(path)]
                continue
            os.ftruncate(descriptor, 0)
            os.write(descriptor, run.encode())
            held.devices.append(device)
            held.descriptors.append(descriptor)
        if len(held.devices) == count:
            return held
        held.release()
    return list(dict.fromkeys(before))


@contextlib.contextmanager
def _alone(site: Site) -> Iterator[None]:
    site.claims.mkdir(mode=0o700, exist_ok=True)
    site.queue.mkdir(mode=0o700, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(site.claims / ".lock", flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _lock(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(5):  # somebody may look just now, which takes the lock for a moment
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.01)
        else:
            return descriptor
    os.close(descriptor)
    return None
