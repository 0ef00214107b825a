"""Which cases of a table every run tries, and which `make night` adds."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def by_night(cases: Iterable[Any], always: Collection[Any]) -> list[ParameterSet]:
    """Return the parameters of a test: all but a few are marked for the night.

    + cases: a name, or a tuple of values, for each
    + always: those that every run tries, each one of the cases
    """
    cases = list(cases)
    assert set(always) <= set(cases), set(always) - set(cases)
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            id=" ".join(map(str, case)) if isinstance(case, tuple) else str(case),
            marks=() if case in always else pytest.mark.night,
        )
        for case in cases
    ]
