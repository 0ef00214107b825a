"""What a training's log says of its steps: read line by line, written down, and read again.

Metrics are dicts of step, steps, epoch, loss and so on. A loss that is no number is None, and
`not_finite` has the word for it.
"""

from __future__ import annotations

import contextlib
import json
import pkgutil
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from ..terminal import without_escapes
from .host import moment, now

Metric = dict[str, Any]
_Fields = dict[str, list[re.Pattern[str]]]
LARGEST = 2 << 20
"""Bytes of `metrics.jsonl`; of a larger one every second line is left out."""
_LONGEST = 2000  # characters of a line; what programs print of a step comes to a tenth of that
_BARS = 3  # of the states that a progress bar left on one line, the last ones
_MOST = 1e15  # a number that is larger was no count, no rate and no time
_RECENT = 200
_COUNTS = ("step", "steps", "epoch")
_NUMBER = (
    r"(?P<number>[+-]?(?:\d{1,3}(?:,\d{3}){1,5}|\d{1,18})(?:\.\d{0,18})?(?:[eE][+-]?\d{1,3})?"
    r"|(?i:[+-]?(?:nan|inf(?:inity)?)))"
)
_END = r"(?![\w.])"


@lru_cache(maxsize=1)
def formats() -> list[tuple[re.Pattern[str], bool, _Fields]]:
    """Return how programs print their steps: of a line, whether it is a bar, and of its fields."""

    def compiled(pattern: str) -> re.Pattern[str]:
        unit = pattern.partition("<number>")[2]
        return re.compile(
            pattern.replace("<number>", _NUMBER if unit else _NUMBER + _END), re.ASCII
        )

    return [
        (
            compiled(entry["line"]),
            bool(entry.get("bar")),
            {name: [*map(compiled, patterns)] for name, patterns in entry["fields"].items()},
        )
        for entry in json.loads(pkgutil.get_data(__package__ or "", "formats.json") or b"[]")
    ]


def _metric(counts: Mapping[str, str | None], fields: _Fields, text: str) -> Metric:
    found: Metric = {name: int(count) for name in _COUNTS if (count := counts.get(name))}
    for name, patterns in fields.items():
        for match in filter(None, (each.search(text) for each in patterns)):
            value = float(match["number"].replace(",", ""))
            if abs(value) <= _MOST:
                found[name] = value
            elif name == "loss" and match["number"][-1].isalpha():
                found |= {"loss": None, "not_finite": str(value)}
            break
    return found


@dataclass
class History:
    """What an attempt's log said of its steps.

    + last: what is known of the last step; + losses: the curve of all attempts
    + not_finite: since which step the loss is no number, and what it is
    + moments: (time, step) of the last steps
    """

    last: Metric = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    not_finite: tuple[int | None, str] | None = None
    moments: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_RECENT))

    @property
    def pace(self) -> float | None:
        """Seconds a step."""
        if len(self.moments) < 2:
            return None
        (began, first), (ended, last) = self.moments[0], self.moments[-1]
        return (ended - began) / (last - first) if ended > began else None

    @property
    def left(self) -> float | None:
        """Seconds until the last step."""
        step, steps, pace = self.last.get("step"), self.last.get("steps"), self.pace
        return None if step is None or not steps or pace is None else max(0, steps - step) * pace

    def stalled(self, at: float) -> float | None:
        """Return for how many seconds no step has come, where that is ten times the usual."""
        times = [when for when, _ in self.moments]
        if len(times) < 2:
            return None
        usual, waited = median(b - a for a, b in pairwise(times)), at - times[-1]
        return waited if waited >= max(10 * usual, 300) else None

    def add(self, metric: Metric) -> None:
        """Take in a line of the attempt."""
        step, when = metric.get("step"), moment(metric.get("time"))
        if metric.get("loss") is not None:
            self.not_finite = None
            self.last.pop("not_finite", None)
        elif "not_finite" in metric and self.not_finite is None:
            self.not_finite = step, metric["not_finite"]
        self.last.update(metric)
        if step is None or when is None:
            return
        if self.moments and step < self.moments[-1][1]:
            self.moments.clear()
        if not self.moments or step > self.moments[-1][1]:
            self.moments.append((when, step))


class Metrics:
    """Reads one rank's lines in order, and writes down what they say of an attempt's steps."""

    def __init__(self, path: Path, attempt: int, largest: int = LARGEST) -> None:
        self._path, self._attempt, self._largest = path, attempt, largest
        self._last: Metric = {}  # what the training's bar showed last
        self._trains = False  # whether a loss came with that bar
        self.history = History()

    def read(self, line: str) -> Metric | None:
        """Take in what a line says of a step, and return it; a full disk loses it, and no more."""
        states = line[-_LONGEST * _BARS :].split("\r")[-_BARS:]
        found = (self._state(without_escapes(each[:_LONGEST])) for each in reversed(states) if each)
        if not (metric := next(filter(None, found), None)):
            return None
        whole = {"time": now(), "attempt": self._attempt, **metric}
        self.history.add(whole)
        with contextlib.suppress(OSError):
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(whole, allow_nan=False) + "\n")
                large = file.tell() >= self._largest
            if large:
                self._thin_out()
        return metric

    def _state(self, text: str) -> Metric | None:
        for line, bar, fields in formats():
            if match := line.search(text):
                metric = _metric(match.groupdict(), fields, text)
                counts = {} if "step" in metric else self._last
                at = {name: counts[name] for name in _COUNTS if name in counts}
                found = self._bar(metric) if bar else {**metric, **at}
                self._trains = self._trains or (found is not None and "loss" in found)
                return found
        return None

    def _bar(self, metric: Metric) -> Metric | None:
        """Return the metric of a bar that is the training's, and moved."""
        if "step" not in metric or "steps" not in metric:
            return None
        last = self._last
        full = last.get("step") == last.get("steps") and not self._trains
        if last and metric["steps"] < last["steps"] and not full:
            return None  # an evaluation's, beside it
        if all(metric.get(name) == last.get(name) for name in _COUNTS):
            return None
        self._last = metric
        return metric

    def _thin_out(self) -> None:
        """Leave out every second line: the curve stays, and the end is never cut off."""
        thinner = self._path.with_suffix(".tmp")
        with self._path.open("rb") as old, thinner.open("wb") as new:
            new.writelines(line for number, line in enumerate(old) if number % 2)
        thinner.replace(self._path)


def history(path: Path, attempt: int) -> History:
    """Return what `metrics.jsonl` says; of other attempts only the curve."""
    found = History()
    with contextlib.suppress(OSError), path.open("rb") as file:
        for line in file:
            with contextlib.suppress(ValueError, KeyError, TypeError):  # torn by a power cut
                metric = json.loads(line)
                if metric["attempt"] == attempt:
                    found.add(metric)
                if metric.get("loss") is not None:
                    found.losses.append(metric["loss"])
    return found


def sampled(losses: Sequence[float], points: int) -> list[float]:
    """Return a curve in at most so many points."""
    return [float(f"{loss:.6g}") for loss in losses[:: -(-len(losses) // points) or 1]]
