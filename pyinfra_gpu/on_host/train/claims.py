"""Who has which GPU: one lock a device, held by the run's supervisor, and by nothing after it.

All of it is done under one lock that is held for a moment, so that two runs never have half of
what each of them needs, and a look never stands in the way of a claim. Those that wait have
tickets, numbered in the order in which they came; a ticket whose holder is gone counts for nothing.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .site import Site

CPU = "cpu"
_TICKET = re.compile(r"([0-9]{8})-(.+)", re.ASCII)


class Held:
    """What one process holds; the kernel lets go of it when that process ends."""

    def __init__(self) -> None:
        self.devices: list[str] = []
        self._open: list[int] = []

    def add(self, device: str, descriptor: int) -> None:
        """Keep a lock that was taken."""
        self.devices.append(device)
        self._open.append(descriptor)

    def release(self) -> None:
        """Let go of everything."""
        for descriptor in self._open:
            os.close(descriptor)
        self.devices, self._open = [], []


@contextmanager
def _looking(site: Site) -> Iterator[bool]:
    """Be alone for a look, which writes nothing: on a full disk it could not.

    Yields whether anybody has ever claimed anything here.
    """
    try:
        descriptor = os.open(site.claims / ".lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield True
    finally:
        os.close(descriptor)


@contextmanager
def _alone(site: Site) -> Iterator[None]:
    site.claims.mkdir(mode=0o700, exist_ok=True)
    site.queue.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(site.claims / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _taken(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int | None:
    """Return a descriptor that holds the lock of this file, None where somebody else has it."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip()


def holders(site: Site, devices: Sequence[str]) -> dict[str, str]:
    """Return device -> run of those that are claimed."""
    found = {}
    with _looking(site) as any_:
        for device in devices if any_ else ():
            path = site.claims / f"{device}.lock"
            if not path.exists():
                continue
            descriptor = _taken(path, os.O_RDWR)
            if descriptor is None:
                found[device] = _read(path)
            else:
                os.close(descriptor)
    return found


def remedy(runs: Iterable[str], *, alone: bool) -> str:
    """Return what to do where these runs have what another one needs.

    + alone: whether that one is of this host alone; one of several hosts does not wait
    """
    ends = " and ".join(f"`train stop {run}`" for run in dict.fromkeys(runs) if run)
    ways = [*(["give --queue to wait"] * alone), *([f"end what has it: {ends}"] if ends else [])]
    return ", or ".join(ways) or "start it when they have ended"


def waiting(site: Site) -> list[str]:
    """Return the runs that wait, in their order."""
    with _looking(site) as any_:
        return [run for _, run, _ in _tickets(site)] if any_ else []


def ahead(site: Site, run: str) -> list[str]:
    """Return the runs that wait before this one for a device that it may take as well."""
    with _looking(site) as any_:
        tickets = _tickets(site) if any_ else []
    own = next(((number, devices) for number, name, devices in tickets if name == run), None)
    if own is None:
        return []
    return [name for number, name, theirs in tickets if number < own[0] and theirs & own[1]]


def _tickets(site: Site) -> list[tuple[int, str, frozenset[str]]]:
    """Return (number, run, devices it would take) of each ticket that somebody holds."""
    found = []
    for path in sorted(site.queue.iterdir()):
        match = _TICKET.fullmatch(path.name)
        if not match:
            continue
        descriptor = _taken(path, os.O_RDWR)
        if descriptor is None:
            found.append((int(match[1]), match[2], frozenset(_read(path).split())))
        else:
            path.unlink()
            os.close(descriptor)
    return found


class Ticket:
    """A place in the queue, for as long as this process lives or until it is given up."""

    def __init__(self, site: Site, run: str, devices: Sequence[str]) -> None:
        self.site, self.run = site, run
        with _alone(site):
            self.number = max([number for number, _, _ in _tickets(site)], default=0) + 1
            self.path = site.queue / f"{self.number:08}-{run}"
            descriptor = _taken(self.path)
            assert descriptor is not None  # noqa: S101 - the number is new, and we are alone
            self._descriptor = descriptor
            os.write(descriptor, " ".join(devices).encode())

    def give_up(self) -> None:
        """Leave the queue."""
        self.path.unlink(missing_ok=True)
        os.close(self._descriptor)


def claim(
    site: Site, run: str, devices: Sequence[str], count: int, ticket: Ticket | None
) -> Held | list[str]:
    """Take `count` of these devices, all or none.

    + devices: in the order in which they are tried
    + ticket: of who waits; without one, whoever waits for one of these devices goes first

    Returns what is held, or the runs in whose favour nothing is.
    """
    held, before = Held(), []
    with _alone(site):
        ahead: set[str] = set()
        for number, other, theirs in _tickets(site):
            if other != run and (ticket is None or number < ticket.number):
                ahead |= theirs
                if theirs & set(devices):
                    before.append(other)
        for device in devices:
            if len(held.devices) == count:
                break
            if device in ahead:
                continue
            path = site.claims / f"{device}.lock"
            descriptor = _taken(path)
            if descriptor is None:
                before.append(_read(path))
                continue
            os.ftruncate(descriptor, 0)
            os.write(descriptor, run.encode())
            held.add(device, descriptor)
        if len(held.devices) == count:
            return held
        held.release()
    return list(dict.fromkeys(before))
