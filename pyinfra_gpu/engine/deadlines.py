"""How long what we do on a host may take, before this host is given up: one table.

In seconds, and generous: a deadline here is for a host that hangs, not for one that is slow. What
somebody declares, such as ``look_timeout_s`` or the smoke test's own deadline, is not here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop

PLAIN = 120.0  # reads or writes a few small files; each call that names no deadline of its own
SERVICE = 300.0  # starts or stops services, asks a package manager about what is installed
SIMULATION = 600.0  # reads lists of packages, updates them, computes a transaction
MODULE = 1800.0  # builds a kernel module, makes an initramfs, loads the driver
COMPILE = 3600.0  # compiles a handful of files and runs them; the compiler has a limit of its own
CLONE = 3600.0  # fetches a repository
BUILD = 12 * 3600.0  # follows a build from source; when this is over, the next run follows it
INSTALL = 4 * 3600.0  # fetches and unpacks gigabytes, builds modules on the way

_TICK_S = 1.0


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """Give up what is inside after so many seconds, whatever it is waiting for.

    Time in which nothing at all can go on does not count: pyinfra asks for a password of sudo's
    by a call that stops every host's work, and nobody has to type against the clock.

    Raises TimeoutError, an OSError, which says what took too long.
    """
    waiting, over = gevent.getcurrent(), gevent.Timeout()  # never started: something to throw
    tick = min(_TICK_S, seconds / 4)
    left = seconds

    def count() -> None:
        nonlocal left
        left -= tick
        if left <= 0:
            waiting.throw(over)

    timer = gevent.get_hub().loop.timer(tick, tick)
    timer.start(count)
    try:
        yield
    except gevent.Timeout as ended:
        if ended is not over:
            raise
        raise TimeoutError(f"{what} within {seconds:g} s") from None
    finally:
        timer.close()
