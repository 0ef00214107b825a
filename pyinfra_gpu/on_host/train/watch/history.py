"""The steps of a run, followed in its metrics.jsonl as they are written, in bounded memory."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ..reading.stall import stalled
from ..record import moment
from ..words import resampled

MOST_POINTS = 512
"""Of the curve of the loss; of more steps, neighbours become their mean."""

_CHUNK = 1 << 20
_LONGEST = 4096  # bytes of a line
_RECENT = 200  # steps by which the pace is told
_COUNTS = ("step", "steps", "epoch")
_RATES = ("tokens_per_second", "tokens_per_second_per_gpu", "mfu", "seconds")


@dataclass
class Curve:
    """A series of any length as at most so many points, all of the same number of values."""

    points: list[float] = field(default_factory=list)
    _each: int = 1
    _sum: float = 0.0
    _count: int = 0

    def add(self, value: float) -> None:
        """Take in the next value."""
        self._sum, self._count = self._sum + value, self._count + 1
        if self._count < self._each:
            return
        self.points.append(self._sum / self._count)
        self._sum, self._count = 0.0, 0
        if len(self.points) >= MOST_POINTS:
            pairs = zip(self.points[::2], self.points[1::2], strict=False)
            self.points = [(one + other) / 2 for one, other in pairs]
            self._each *= 2


class History:
    """What is known of the steps so far.

    + last: the newest value of each field; + losses: finite ones, oldest first
    + not_finite: (step, word) of the first loss since the last finite one that was no number
    + lines: how many were read
    """

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._rest = path, 0, b""
        self._moments: deque[tuple[float, int]] = deque(maxlen=_RECENT)
        self.losses = Curve()
        self.last: dict[str, float] = {}
        self.not_finite: tuple[int | None, str] | None = None
        self.lines = 0
        self._attempt = 0

    def begin(self, attempt: int) -> None:
        """Forget the steps of the attempts before this one, but for the curve: it goes on.

        What they reached it has not: it began from a checkpoint before that.
        """
        if attempt <= self._attempt:
            return
        if self._attempt:
            self.last, self.not_finite = {}, None
            self._moments.clear()
        self._attempt = attempt

    def follow(self) -> None:
        """Read what has been written since the last time; a file that shrank is another one."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self._offset:
                    self.__init__(self._path)  # type: ignore[misc]  # from the beginning
                file.seek(self._offset)
                while chunk := file.read(_CHUNK):
                    self._offset += len(chunk)
                    self._take(chunk)
        except OSError:
            return

    def _take(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self._rest = self._rest[: 2 * _LONGEST]
        for line in lines:
            if len(line) <= _LONGEST and (told := _object(line)) is not None:
                self._add(told)

    def _add(self, told: Mapping[str, Any]) -> None:
        self.lines += 1
        if isinstance(attempt := told.get("attempt"), int):
            self.begin(attempt)
        for name in (*_COUNTS, *_RATES):
            value = _number(told.get(name))
            if value is not None:
                self.last[name] = int(value) if name in _COUNTS else value
        step, when = _number(told.get("step")), moment(told.get("time"))
        if step is not None and when is not None:
            self._at(int(step), when)
        loss = _number(told.get("loss"))
        if loss is not None:
            self.losses.add(loss)
            self.last["loss"], self.not_finite = loss, None
        elif told.get("not_finite") in ("nan", "inf", "-inf") and self.not_finite is None:
            self.not_finite = (None if step is None else int(step), told["not_finite"])

    def _at(self, step: int, when: float) -> None:
        if self._moments and step < self._moments[-1][1]:
            self._moments.clear()  # resumed, or another epoch
        if not self._moments or step > self._moments[-1][1]:
            self._moments.append((when, step))

    @property
    def has_loss(self) -> bool:
        """Whether the log tells a loss at all, be it a number or not."""
        return "loss" in self.last or self.not_finite is not None

    @property
    def newest(self) -> float | None:
        """When the last step was seen."""
        return self._moments[-1][0] if self._moments else None

    def pace(self) -> float | None:
        """Return the seconds that a step takes lately, from the moments of the steps."""
        if len(self._moments) < 2:
            return None
        (began, first), (ended, last) = self._moments[0], self._moments[-1]
        return (ended - began) / (last - first) if ended > began else None

    def left(self) -> float | None:
        """Return the seconds until the last step, at the pace of late."""
        step, steps, pace = self.last.get("step"), self.last.get("steps"), self.pace()
        if step is None or not steps or pace is None:
            return None
        return max(0.0, steps - step) * pace

    def stalled(self, now: float) -> float | None:
        """Return for how long there has been no step where that is too long."""
        return stalled([when for when, _ in self._moments], now)


def told_steps(path: Path) -> bool:
    """Return whether a run came as far as a step."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def sampled_losses(path: Path, points: int) -> list[float]:
    """Return the losses of so many steps, evenly spread over the file, whatever its length.

    A short file is read whole, and neighbours become their mean.
    """
    try:
        size = path.stat().st_size
        if size <= _CHUNK:
            history = History(path)
            history.follow()
            return resampled(history.losses.points, points)
        with path.open("rb") as file:
            lines = [_line_at(file, size * number // points) for number in range(points)]
    except OSError:
        return []
    told = (_object(line) for line in lines)
    losses = (_number(each.get("loss")) for each in told if each is not None)
    return [loss for loss in losses if loss is not None]


def _line_at(file: BinaryIO, offset: int) -> bytes:
    """Return the first whole line behind a place."""
    file.seek(offset)
    if offset:
        file.readline(_LONGEST)
    return file.readline(_LONGEST)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < 1e18 and math.isfinite(value) else None
