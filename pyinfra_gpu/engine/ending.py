"""End a run by a signal, wherever it is at that moment."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import click
import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop


class Ended(SystemExit):
    """The end by a signal, and not by what a user's file calls."""


def on_signal(number: signal.Signals, first: Callable[[], None] = lambda: None) -> None:
    """Have a signal end this process, with the exit code 128 + its number.

    + first: called at once, before anything is ended

    Python runs a handler in whichever greenlet it finds, and under pyinfra that is as often a
    host's, or the one in which paramiko reads, as the main one. `threading` drops a SystemExit
    in silence, and the run would go on; so it is raised in the main greenlet.
    """

    def ended(received: int, frame: FrameType | None) -> None:
        first()
        end, hub = Ended(128 + received), gevent.get_hub()
        if gevent.getcurrent() is hub.parent:
            raise end
        hub.loop.run_callback(hub.parent.throw, end)  # as soon as it waits

    signal.signal(number, ended)


@contextmanager
def ended_by(*numbers: signal.Signals) -> Iterator[None]:
    """Have each of these signals end what is inside, and say so on stderr.

    What the signals did before is set again afterwards. SIGHUP that is ignored, as under nohup,
    stays so.
    """
    before = {number: signal.getsignal(number) for number in numbers}
    if before.get(signal.SIGHUP) == signal.SIG_IGN:
        del before[signal.SIGHUP]
    for number in before:
        on_signal(number)
    try:
        yield
    except SystemExit as end:
        if end.code in [128 + number for number in numbers]:
            with suppress(OSError):  # the terminal may be what is gone
                click.echo("interrupted", err=True)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
