"""Whether a run makes no progress: told from the moments of its steps alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

TIMES = 10
"""Without a step for so many times as long as one takes, it stands still."""

AT_LEAST_S = 300.0
"""Seconds: an evaluation, a checkpoint or a slow disk take that long in a run that is well."""

_RECENT = 200
"""Steps of which the median is taken: what a run did in its first minutes says nothing now."""


def stalled(step_times: Sequence[float], now: float) -> float | None:
    """Return for how many seconds there has been no step, None where that is as it may be.

    + step_times: the moments of the steps seen, in seconds, oldest first
    + now: on the same clock

    Of less than two steps nobody knows how long one takes: then nothing is said.
    """
    recent = step_times[-_RECENT:]
    if len(recent) < 2:
        return None
    usual = median(later - earlier for earlier, later in pairwise(recent))
    waited = now - recent[-1]
    return waited if waited >= max(TIMES * usual, AT_LEAST_S) else None
