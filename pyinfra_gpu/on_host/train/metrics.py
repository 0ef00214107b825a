"""What a training's log says of its steps: read line by line, written down, and read again.

Metrics are dicts of step, steps, epoch, loss and so on. A loss that is no number is None, and
`not_finite` has the word for it.
"""

from __future__ import annotations

import contextlib
import json
import math
import pkgutil
import re
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from ..terminal import without_escapes
from .host import moment, now

Metric = dict[str, Any]
LARGEST = 2 << 20
"""Bytes of `metrics.jsonl`; of a larger one every second line is left out."""
_LONGEST = 2000  # characters of a line; what programs print of a step comes to a tenth of that
_BARS = 3  # of the states that a progress bar left on one line, the last ones
_MOST = 1e15  # a number that is larger was no count, no rate and no time
_RECENT = 200
_NUMBER = (
    r"(?P<number>[+-]?(?:\d{1,3}(?:,\d{3}){1,5}|\d{1,18})(?:\.\d{0,18})?(?:[eE][+-]?\d{1,3})?"
    r"|(?i:[+-]?(?:nan|inf(?:inity)?)))"
)
_END = r"(?![\w.])"


@lru_cache(maxsize=1)
def _formats() -> list[tuple[re.Pattern[str], bool, dict[str, list[re.Pattern[str]]]]]:
    found = []
    for entry in json.loads(pkgutil.get_data(__package__ or "", "formats.json") or b"[]"):
        fields = {
            name: [re.compile(_with_number(each), re.ASCII) for each in patterns]
            for name, patterns in entry["fields"].items()
        }
        line = re.compile(entry["line"], re.ASCII)
        found.append((line, bool(entry.get("bar")), fields))
    return found


def _with_number(pattern: str) -> str:
    unit = pattern.partition("<number>")[2]
    return pattern.replace("<number>", _NUMBER if unit else _NUMBER + _END)


class MetricReader:
    """Reads one rank's lines, in order."""

    def __init__(self) -> None:
        self._last: Metric = {}  # what the training's bar showed last
        self._trains = False  # whether a loss came with that bar

    def read(self, line: str) -> Metric | None:
        """Return what a line says of a step; None for any other one. Never raises."""
        states = line[-_LONGEST * _BARS :].split("\r")[-_BARS:] if "\r" in line else [line]
        for state in reversed(states):
            if state and (found := self._state(without_escapes(state[:_LONGEST]))):
                return found
        return None

    def _state(self, text: str) -> Metric | None:
        for line, bar, fields in _formats():
            if match := line.search(text):
                metric = _metric(match.groupdict(), dict(_values(fields, text)))
                found = self._bar(metric) if bar else self._with_step(metric)
                self._trains = self._trains or (found is not None and "loss" in found)
                return found
        return None

    def _bar(self, metric: Metric) -> Metric | None:
        """Return the metric of a bar that is the training's, and moved."""
        if "step" not in metric or "steps" not in metric:
            return None
        last, counts = self._last, ("epoch", "step", "steps")
        full = last.get("step") == last.get("steps") and not self._trains
        if last and metric["steps"] < last["steps"] and not full:
            return None  # an evaluation's, beside it
        if [metric.get(name) for name in counts] == [last.get(name) for name in counts]:
            return None
        self._last = metric
        return metric

    def _with_step(self, metric: Metric) -> Metric:
        if "step" in metric or "step" not in self._last:
            return metric
        known = {name: each for name, each in self._last.items() if name in _COUNTS}
        return {**metric, **known}


_COUNTS = ("step", "steps", "epoch")


def _values(fields: Mapping[str, Sequence[re.Pattern[str]]], text: str) -> Iterator[Any]:
    for name, patterns in fields.items():
        match = next((found for each in patterns if (found := each.search(text))), None)
        if match is None:
            continue
        value = float(match["number"].replace(",", ""))
        written = match["number"][-1].isdigit() or match["number"][-1] == "."
        if not written or abs(value) <= _MOST:
            yield name, value


def _metric(counts: Mapping[str, str | None], values: dict[str, float]) -> Metric:
    found: Metric = {name: int(text) for name in _COUNTS if (text := counts.get(name))}
    finite = {name: value for name, value in values.items() if math.isfinite(value)}
    if "loss" in values:
        found["loss"] = finite.get("loss")
        if "loss" not in finite:
            value = values["loss"]
            found["not_finite"] = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    for name in ("epoch_part", "tokens_per_second", "tokens_per_second_per_gpu", "mfu", "seconds"):
        if name in finite:
            found[name] = finite[name]
    if "milliseconds" in finite:
        found["seconds"] = round(finite["milliseconds"] / 1000, 9)
    elif finite.get("steps_per_second"):
        found["seconds"] = round(1 / finite["steps_per_second"], 4)
    return found


def stalled(times: Sequence[float], moment_: float) -> float | None:
    """Return for how many seconds no step has come, where that is ten times the usual."""
    recent = [*times][-_RECENT:]
    if len(recent) < 2:
        return None
    usual = median(later - earlier for earlier, later in pairwise(recent))
    waited = moment_ - recent[-1]
    return waited if waited >= max(10 * usual, 300) else None


class Metrics:
    """Writes down what the first rank that tells of steps says."""

    def __init__(self, path: Path, attempt: int, largest: int = LARGEST) -> None:
        self._path, self._attempt, self._largest = path, attempt, largest
        self._file = path.open("ab", buffering=0)
        self._teller: MetricReader | None = None
        self._alone = threading.Lock()  # each rank's log is read by a thread
        self.last: Metric = {}
        self.times: deque[float] = deque(maxlen=_RECENT + 1)

    def read(self, reader: MetricReader, line: str) -> None:
        metric = reader.read(line)
        with self._alone, contextlib.suppress(OSError):
            if metric is None or self._teller not in (None, reader):
                return
            self._teller, self.last = reader, metric
            self.times.append(time.time())
            text = json.dumps({"time": now(), "attempt": self._attempt, **metric}, allow_nan=False)
            if self._file.write(f"{text}\n".encode()) and self._file.tell() >= self._largest:
                self._thin_out()

    def _thin_out(self) -> None:
        """Leave out every second line: the curve stays, and the end is never cut off."""
        thinner = self._path.with_suffix(".tmp")
        with self._path.open("rb") as old, thinner.open("wb") as new:
            new.writelines(line for number, line in enumerate(old) if number % 2)
        thinner.replace(self._path)
        self._file.close()
        self._file = self._path.open("ab", buffering=0)

    def close(self) -> None:
        self._file.close()


# -- reading them again


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
    lines: int = 0
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

    def stalled(self, moment_: float) -> float | None:
        return stalled([when for when, _ in self.moments], moment_)

    def add(self, told: Metric, *, current: bool) -> None:
        if told.get("loss") is not None:
            self.losses.append(told["loss"])
        if not current:
            return
        self.lines += 1
        step = told.get("step")
        if told.get("loss") is not None:
            self.not_finite = None
            self.last.pop("not_finite", None)
        elif "not_finite" in told and self.not_finite is None:
            self.not_finite = step, told["not_finite"]
        self.last.update(told)
        when = moment(told.get("time"))
        if step is None or when is None:
            return
        if self.moments and step < self.moments[-1][1]:
            self.moments.clear()
        if not self.moments or step > self.moments[-1][1]:
            self.moments.append((when, step))


def history(path: Path, attempt: int) -> History:
    """Return what `metrics.jsonl` says; of other attempts only the curve."""
    found = History()
    with contextlib.suppress(OSError), path.open("rb") as file:
        for line in file:
            with contextlib.suppress(ValueError, KeyError, TypeError):  # torn by a power cut
                told = json.loads(line)
                found.add(told, current=told["attempt"] == attempt)
    return found


def sampled(losses: Sequence[float], points: int) -> list[float]:
    """Return a curve in at most so many points."""
    each = -(-len(losses) // points) or 1
    return [float(f"{loss:.6g}") for loss in losses[::each]]
