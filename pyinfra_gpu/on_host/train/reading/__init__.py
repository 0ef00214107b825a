"""From the lines that a training prints to numbers. What is not known to be one is none."""

from __future__ import annotations

from ...terminal import without_escapes
from .formats import LONGEST, Format, formats
from .metric import Metric, told_not_finite

__all__ = ["Metric", "MetricReader"]

_BARS = 3
"""So many of the states that a progress bar left on one line are looked at, the last ones."""


class MetricReader:
    """Reads one rank's lines, in order."""

    def __init__(self) -> None:
        self._last = Metric()  # what the training's bar showed last
        self._trains = False  # whether that bar is known to be of the training: a loss came with it

    def read(self, line: str) -> Metric | None:
        """Return what the line says of a step; None for any other line. Never raises.

        + line: as the program printed it, of any length, with or without its end
        """
        states = line[-LONGEST * _BARS :].split("\r")[-_BARS:] if "\r" in line else [line]
        for state in reversed(states):
            if state and (found := self._state(without_escapes(state[:LONGEST]))):
                return found
        return None

    def _state(self, text: str) -> Metric | None:
        for each in formats():
            if match := each.line.search(text):
                metric = _metric(each, match.groupdict(), each.values(text))
                return self._bar(metric) if each.bar else self._with_step(metric)
        return None

    def _bar(self, metric: Metric) -> Metric | None:
        """A bar is shown many times; a shorter one within it, or after it, is another loop's.

        Data may be prepared under a longer bar before: that one gives way when it is full.
        """
        if metric.steps is None or metric.step is None:
            return None
        last = self._last
        full = last.step == last.steps and not self._trains
        if last.steps is not None and metric.steps < last.steps and not full:
            return None
        if (metric.epoch, metric.step, metric.steps) == (last.epoch, last.step, last.steps):
            return None
        self._last = metric
        self._trains = self._trains or metric.has_loss
        return metric

    def _with_step(self, metric: Metric) -> Metric | None:
        """A line without a step of its own is about the one that the bar shows."""
        self._trains = self._trains or metric.has_loss
        if metric.step is not None or self._last.step is None:
            return metric
        told = {"step": self._last.step, "steps": self._last.steps, "epoch": self._last.epoch}
        return Metric(**{**metric.as_json(), **told})  # type: ignore[arg-type]


def _metric(kind: Format, groups: dict[str, str | None], values: dict[str, float]) -> Metric:
    whole = {
        name: int(groups[name] or "") for name in ("step", "steps", "epoch") if groups.get(name)
    }
    loss = values.get("loss")
    finite = {name: value for name, value in values.items() if told_not_finite(value) is None}
    return Metric(
        **whole,
        loss=finite.get("loss"),
        not_finite=None if loss is None else told_not_finite(loss),
        epoch_part=finite.get("epoch_part"),
        tokens_per_second=finite.get("tokens_per_second"),
        tokens_per_second_per_gpu=finite.get("tokens_per_second_per_gpu"),
        mfu=finite.get("mfu"),
        seconds=_seconds(finite),
    )


def _seconds(values: dict[str, float]) -> float | None:
    if "milliseconds" in values:
        return round(values["milliseconds"] / 1000, 9)
    if rate := values.get("steps_per_second"):
        return round(1 / rate, 4)
    return values.get("seconds")
