"""All that is shown of a run at one moment: gathered here, laid out by others."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...terminal import shortened
from .. import resuming, rundir
from ..errors import TrainError
from ..record import Run, rank_of, settled_run, tail_of, unstamped
from .history import History
from .machine import Gpu, Gpus, Memory, memory

_TAIL = 64 << 10
"""Bytes of a log that are looked through for a warning."""

_LONGEST_LINE = 400
_WARNING = re.compile(
    r"\b(?:WARNING|Warning|\w{1,40}Warning|warning|WARN)\b|(?:^|[\[ ])W\d{4} \d\d:|\[W "
)
# Python says where a warning is from before it says what it is.
_PLACE = re.compile(r"^\S{1,300}:\d{1,6}: (?=\w{1,40}Warning)")
# What a host without a name for an address says each time, and goes on.
_HARMLESS = "[c10d] The hostname of the client socket cannot be retrieved"
_GPUS_EVERY_S = 2.0
_LOGS_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a log, and whose it is."""

    rank: int | None
    at: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """One moment of a run.

    + gpus: a sentence where they cannot be told; + gpus_of_run: how many it has
    + checkpoint: the newest complete one's name, and when it was written
    + last_line: of rank 0, for a log whose format is not known
    """

    run: Run
    history: History
    now: float
    gpus: tuple[Gpu, ...] | str = ()
    memory: Memory | None = None
    warning: Line | None = None
    last_line: Line | None = None
    checkpoint: tuple[str, float] | None = None

    @property
    def elapsed(self) -> float | None:
        """Seconds that the last attempt took, so far or in all."""
        last = self.run.last
        if last is None or last.started is None:
            return None
        return max(0.0, (last.ended if last.ended is not None else self.now) - last.started)

    @property
    def over(self) -> bool:
        """Whether nothing more is to come."""
        return self.run.state == "ended"


class Watched:
    """A run that is looked at again and again; what is costly is asked for less often."""

    def __init__(
        self,
        folder: Path,
        run: Run,
        *,
        gpus: Gpus | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._run, self._clock = folder, run, clock
        self._history = History(folder / "metrics.jsonl")
        self._gpus = gpus or Gpus(run.gpus)
        self._gpus_now: tuple[Gpu, ...] | str = ()
        self._lines: tuple[Line | None, Line | None] = (None, None)
        self._checkpoint: tuple[str, float] | None = None
        self._gpus_at = self._logs_at = float("-inf")

    def look(self) -> Seen:
        """Return how it is now."""
        now = self._clock()
        self._run = settled_run(self._folder) or self._run
        self._history.follow()
        if self._run.last is not None:
            self._history.begin(self._run.last.number)
        if now - self._gpus_at >= _GPUS_EVERY_S or now < self._gpus_at:
            self._gpus_now, self._gpus_at = self._gpus.now(), now
        if now - self._logs_at >= _LOGS_EVERY_S or now < self._logs_at:
            self._lines, self._logs_at = _lines(self._run), now
            self._checkpoint = newest_checkpoint(self._folder)
        warning, last = self._lines
        return Seen(
            run=self._run,
            history=self._history,
            now=now,
            gpus=self._gpus_now,
            memory=memory(),
            warning=warning,
            last_line=last,
            checkpoint=self._checkpoint,
        )


def newest_checkpoint(folder: Path) -> tuple[str, float] | None:
    """Return the name and the moment of the newest checkpoint of a run that is complete.

    A run that ends now would go on from there, and not from one that is being written.
    """
    run = rundir.Run(folder)
    try:
        found = resuming.last_complete(run.request(), folder, run.read()["created"])
        return None if found is None else (shortened(found.path.name, 60), found.changed)
    except (TrainError, OSError, KeyError, TypeError, ValueError, AttributeError):
        return None  # a record that is not whole says nothing


def _lines(run: Run) -> tuple[Line | None, Line | None]:
    """Return the last warning of any rank, and rank 0's last line."""
    warning: Line | None = None
    last: Line | None = None
    for log in run.logs()[:16]:
        lines = [each for each in tail_of(log, _TAIL) if each.strip()]
        if lines and last is None:
            last = _line(log, lines[-1])
        found = next((each for each in reversed(lines) if _warns(each)), None)
        if found is not None:
            line = _line(log, found)
            warning = line if warning is None or line.at > warning.at else warning
    return warning, last


def _warns(line: str) -> bool:
    return bool(_WARNING.search(line[:1000])) and _HARMLESS not in line


def _line(log: Path, line: str) -> Line:
    at, text = unstamped(line[-_LONGEST_LINE * 4 :] if "\r" in line else line[: _LONGEST_LINE * 4])
    text = _PLACE.sub("", text.rpartition("\r")[2] or text)
    return Line(rank_of(log), at, shortened(text, _LONGEST_LINE))
