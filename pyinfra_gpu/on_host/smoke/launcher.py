"""The launcher's process: alone in its directory, and told by signals to stop."""

from __future__ import annotations

import fcntl
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from . import part, verdict
from .options import REFUSED, Options
from .run import Test
from .verdict import Announcer


def main(options: Options, bundle: Path) -> int:
    """Run the whole smoke test as asked for; return the process's exit code."""
    announcer, signals = Announcer(options.mode), list[str]()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda told, _: signals.append(signal.Signals(told).name))

    def interruption() -> str | None:
        return next(iter(signals), None)

    with _alone(options, announcer, interruption) as alone:
        if not alone:
            announcer.say(f"another smoke test still runs in {options.output.parent}; not started")
            return REFUSED
        try:
            if options.across is not None:
                return part.HostPart(options, options.across, bundle, announcer, interruption).run()
            return Test(options, bundle, interruption).run()
        except OSError as error:
            announcer.say(f"the smoke test could not be run or recorded: {error}")
        except Exception as error:  # an exit code of 1, Python's own, would mean "degraded"
            traceback.print_exc()
            announcer.say(f"the smoke test has a defect: {type(error).__name__}: {error}")
        return verdict.FAILED


@contextmanager
def _alone(
    options: Options, announcer: Announcer, interruption: Callable[[], str | None]
) -> Iterator[bool]:
    """Hold the lock on the verdict's directory, waiting for at most one deadline.

    A test whose caller has lost its connection goes on to its own deadline; the next one waits
    for it. The kernel releases the lock with the process, so none is ever left behind.
    """
    directory = os.open(options.output.parent, os.O_RDONLY | os.O_DIRECTORY)
    limit, told, locked = time.monotonic() + options.deadline, False, False
    try:
        while not locked and time.monotonic() < limit and not interruption():
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked = True
            except BlockingIOError:
                if not told:
                    announcer.say("waiting for another smoke test on this host to end")
                told = True
                time.sleep(0.2)
        yield locked
    finally:
        os.close(directory)
