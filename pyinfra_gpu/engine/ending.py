"""End a run by a signal, wherever it is at that moment."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import click
import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop


def on_signal(number: signal.Signals, word: str, first: Callable[[], None] = lambda: None) -> None:
    """Have a signal end this process, with the exit code 128 + its number.

    + word: said on stderr when it comes
    + first: called before anything is ended

    One that is ignored, as SIGHUP under nohup, stays so. Python runs a handler in whichever
    greenlet it finds, and under pyinfra that is as often a host's, or the one in which paramiko
    reads, as the main one. `threading` drops a SystemExit in silence, and the run would go on; so
    it is raised in the main greenlet.
    """

    def ended(received: int, frame: FrameType | None) -> None:
        with suppress(OSError):  # the terminal may be what is gone
            click.echo(word, err=True)
        first()
        end, hub = SystemExit(128 + received), gevent.get_hub()
        if gevent.getcurrent() is hub.parent:
            raise end
        hub.loop.run_callback(hub.parent.throw, end)  # as soon as it waits

    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, ended)


@contextmanager
def ended_by(*numbers: signal.Signals) -> Iterator[None]:
    """Have each of these signals end what is inside, and say so; then they do what they did."""
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        on_signal(number, "interrupted")
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
