"""The answers of a check as they come: shown in few blocks, and on a terminal counted in a line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop

from pyinfra_gpu.host_names import brief
from pyinfra_gpu.report.check.answer import HostAnswer
from pyinfra_gpu.text import WIDTH, draws, shortened

TOGETHER_S = 2.0
"""Seconds that an answer waits for others, so that hosts with the same are one also then."""

Shown = Callable[[Sequence[HostAnswer], int], None]
"""Shows some answers, of so many hosts in all."""


class Arrivals:
    """The answers so far; on a terminal a line says how many, and which hosts are waited for.

    + shown: is handed answers to show while others are waited for; each of them once, and not those
      that come with the last: those are left to whoever shows the end
    """

    def __init__(self, shown: Shown | None = None) -> None:
        self.hosts: list[HostAnswer] = []
        self._names: Sequence[str] = ()
        self._shown = shown
        self._done = 0
        self._timer: gevent.Greenlet | None = None

    @property
    def rest(self) -> tuple[HostAnswer, ...]:
        """Those that were not shown; from here on none is."""
        self._stop()
        return tuple(self.hosts[self._done :])

    @property
    def begun(self) -> bool:
        """Whether some were shown."""
        return self._done > 0

    def add(self, host: HostAnswer, names: Sequence[str]) -> None:
        """Take in an answer."""
        self.hosts.append(host)
        self._names = names
        if len(self.hosts) == len(names):
            self._stop()
        elif self._shown and self._timer is None:
            self._timer = gevent.spawn_later(TOGETHER_S, self._show)
        self._count()

    def _stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.kill(block=False)

    def _show(self) -> None:
        """Show what has come by now, over the line, and the line below it anew."""
        self._timer = None
        came, self._done = self.hosts[self._done :], len(self.hosts)
        self._line("")
        if self._shown:
            self._shown(came, len(self._names))
        self._count()

    def _count(self) -> None:
        """Show the line anew, or clear it when the last host has answered."""
        waiting = {*self._names} - {each.name for each in self.hosts}
        done = f"{len(self.hosts)} of {len(self._names)} hosts have answered"
        self._line(shortened(f"{done}, not yet {brief(waiting)}", WIDTH - 1) if waiting else "")

    def _line(self, text: str) -> None:
        if draws(sys.stderr):
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
