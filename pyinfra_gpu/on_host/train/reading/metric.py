"""What one line of a training's log says of a step, as typed and as plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

NotFinite = Literal["nan", "inf", "-inf"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """A step; what the log does not say is None, and never computed in its place.

    + step: of `steps`; with an `epoch`, both count within it. None where the log names no step
    + loss: finite; where it was not, `not_finite` says what it was
    + tokens_per_second: of all ranks; some programs give it for one GPU
    + mfu: model FLOPs utilisation in percent
    + seconds: that a step takes
    """

    step: int | None = None
    steps: int | None = None
    epoch: int | None = None
    epoch_part: float | None = None
    loss: float | None = None
    not_finite: NotFinite | None = None
    tokens_per_second: float | None = None
    tokens_per_second_per_gpu: float | None = None
    mfu: float | None = None
    seconds: float | None = None

    @property
    def has_loss(self) -> bool:
        """Whether the line tells a loss, be it a number or not."""
        return self.loss is not None or self.not_finite is not None

    def as_json(self) -> dict[str, object]:
        """Return what is known as plain data; a loss that is no number is null, and says so."""
        told = {each.name: getattr(self, each.name) for each in fields(self)}
        kept = {"loss"} if self.not_finite else set()
        return {name: value for name, value in told.items() if value is not None or name in kept}


def told_not_finite(value: float) -> NotFinite | None:
    """Return the word for a number that is none."""
    if math.isfinite(value):
        return None
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"
