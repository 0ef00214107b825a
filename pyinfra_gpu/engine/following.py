"""Following a build that goes on by itself on a host: what it says, shown as it goes.

On a terminal one line per host is written over; elsewhere there is a line a minute. The build does
not know whether anybody follows it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.wire import as_run, start, within
from pyinfra_gpu.facts.pytorch_build import BuildState
from pyinfra_gpu.text import draws

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.engine.transport import LastingCommand

_SILENT_S = 60.0
"""Seconds without a word after which a host is given up; it says something every ten."""
_LINE_EVERY_S = 60.0
_LONGEST_LINE = 65000


class LostError(Exception):
    """The connection broke, or the host says nothing any more; the build goes on."""


@dataclass
class Shown:
    """What of a build's progress a person has seen.

    + say: prints a line for good; terminal: whether one line can be written over
    """

    say: Callable[[str], object]
    write: Callable[[str], object] = sys.stderr.write
    terminal: bool = field(default_factory=lambda: draws(sys.stderr))
    clock: Callable[[], float] = time.monotonic
    _said: float | None = None
    _phase: str = ""
    _notes: int = 0

    def show(self, host: str, state: BuildState) -> None:
        """Show how far it is, and what it notes."""
        for note in state.notes[self._notes :]:
            self.say(note)
        self._notes = max(self._notes, len(state.notes))
        label = " (stand-in)" if state.stand_in else ""
        line = f"torch{label}: {state.told()}"
        if self.terminal:
            self.write(f"\r\033[K    [{host}] {line}")
            return
        now = self.clock()
        if self._said is None or state.phase != self._phase or now - self._said >= _LINE_EVERY_S:
            self._said, self._phase = now, state.phase
            self.say(line)

    def end(self) -> None:
        """Leave the line that was written over."""
        if self.terminal:
            self.write("\n")


def follow(
    state: State, host: Host, command: str, run_as: dict[str, Any], fingerprint: str
) -> BuildState:
    """Show a build until it ends; return its last state.

    + command: POSIX shell that prints states, a JSON document a line, until the build ends
    + fingerprint: of the build that is followed; what another one says is passed over

    Raises LostError, and OSError where it takes longer than any build.
    """
    following = start(host, as_run(state, host, command, run_as), seconds=deadlines.PLAIN)
    if following is None:
        raise LostError("this connection cannot follow a program")
    shown = Shown(host.log)
    try:
        with within(deadlines.BUILD, "it did not come to an end"):
            last = _heard(following, host.name, fingerprint, shown)
    finally:
        shown.end()
        following.close()
    if last is None:
        raise LostError("nothing was told of the build")
    if last.status == "running" and last.alive:  # who follows on the host stays until it ends
        raise LostError("the connection broke")
    return last


def _heard(
    following: LastingCommand, host: str, fingerprint: str, shown: Shown
) -> BuildState | None:
    """Show what is said until the program ends; return the last state of the build."""
    last, heard = None, time.monotonic()
    while (line := following.line(1.0)) is not None:
        if line:
            heard = time.monotonic()
            told = BuildState.read(line[:_LONGEST_LINE]) if line.startswith("{") else None
            if isinstance(told, BuildState) and told.fingerprint == fingerprint:
                last = told
                shown.show(host, told)
        elif time.monotonic() - heard > _SILENT_S:
            raise LostError("the host says nothing any more")
    return last
