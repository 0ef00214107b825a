"""Whose turn it is to log in, where many hosts are connected to at once.

A login is most of what a host costs the controller. All of a large fleet's begun at once would
end together, late, and some beyond the time that a login has. So few log in at once, and the
others wait for their turn, while their own time stands still. A host that is not there, or has
not said a word, takes no turn, and one that stops in the middle of its login keeps it for a
moment: none of them holds the others up.
"""

from __future__ import annotations

import resource

import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop
from gevent.lock import BoundedSemaphore  # type: ignore[import-untyped]

LOGINS = 20
"""Hosts that log in at the same time, where data do not say another number."""

LONGEST_S = 3.0
"""Seconds after which another host has its turn, too; a login takes a tenth of that."""

_FILES = 3  # that are open for one host: its connection, the agent's, and one more
_OTHER_FILES = 100
_NAMES = 100
"""Names of hosts that are looked up at once, each in a thread: gevent's 10 would all be held by
names whose server does not answer."""

_waiting: set[object] = set()


def at_once(hosts: int) -> int:
    """Return how many of so many hosts can be connected to at once: all of them, if need be by more
    open files than this process began with.
    """
    files = hosts * _FILES + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != soft < files:
        soft = files if hard == resource.RLIM_INFINITY else min(files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        files = soft
    pool = gevent.get_hub().threadpool
    pool.maxsize = max(pool.maxsize, min(hosts, _NAMES))
    return max(min(hosts, (files - _OTHER_FILES) // _FILES), 1)


def is_waiting(greenlet: object) -> bool:
    """Tell whether it waits for its turn, which is nothing that its host could help."""
    return greenlet in _waiting


class Turns:
    """So many turns at once.

    + number: at least 1
    """

    def __init__(self, number: int = LOGINS) -> None:
        self.number = number
        self._free = BoundedSemaphore(number)

    def take(self) -> Turn:
        """Wait for a turn, and return it."""
        me = gevent.getcurrent()
        _waiting.add(me)
        try:
            self._free.acquire()
        finally:
            _waiting.discard(me)
        return Turn(self._free)


class Turn:
    """One host's turn, which ends by itself in the end."""

    def __init__(self, free: BoundedSemaphore) -> None:
        self._free: BoundedSemaphore | None = free
        self._timer = gevent.spawn_later(LONGEST_S, self.end)

    def end(self) -> None:
        """Let another host have its turn; a second time changes nothing."""
        free, self._free = self._free, None
        if free is not None:
            free.release()
            self._timer.kill(block=False)
