"""Which failed runs nobody has taken up again."""

from __future__ import annotations

from typing import Any

import pytest

from pyinfra_gpu.on_host.train import rundir
from pyinfra_gpu.on_host.train.unresolved import unresolved


def told(name: str, outcome: str = "failed", **fields: Any) -> dict[str, Any]:
    """Return a run that began an hour ago and ended half an hour later."""
    attempts = [{"number": 1, "outcome": outcome, "ended": rundir.later(-1800)}]
    known = {"run": name, "preset": name, "created": rundir.later(-3600), "state": "ended"}
    return {**known, "attempts": attempts, **fields}


AGAIN = {"created": rundir.later(-60)}
OLD = {"attempts": [{"number": 1, "outcome": "failed", "ended": rundir.later(-8 * 86400)}]}


@pytest.mark.parametrize(
    ("runs", "found"),
    [
        ([told("a"), told("b", "finished")], ["a"]),
        ([told("a", "lost"), told("b")], ["a", "b"]),
        ([told("a"), told("a2", "finished", preset="a")], ["a"]),  # it was on, or queued, then
        ([told("a"), told("a2", "finished", preset="a", **AGAIN)], []),
        ([told("a"), told("a2", preset="x", like="a", **AGAIN)], ["a2"]),
        ([told("a"), told("a2", preset="a", trial=True, **AGAIN)], ["a"]),
        ([told("a", trial=True)], []),
        ([told("a", **OLD)], []),
        ([told("a", "stopped"), told("b", state="running"), told("c", attempts=[])], []),
    ],
)
def test_a_failed_run_is_told_until_it_is_taken_up_again(
    runs: list[dict[str, Any]], found: list[str]
) -> None:
    assert unresolved(runs) == found
