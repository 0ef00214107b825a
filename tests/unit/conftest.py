"""Lanes for these tests and those of tests/fake: shares that run as processes of their own."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--lane N/M`: the N-th of M shares, for M processes beside one another."""
    parser.addoption("--lane", metavar="N/M", help="run every M-th test, beginning with the N-th")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the lane alone.

    Every M-th test and not whole files: the cases of a table take about the same time each, so
    the lanes end together without anybody's list of what takes how long.
    """
    lane = config.getoption("--lane")
    if lane is None:
        return
    number, _, lanes = lane.partition("/")
    if not (number.isdecimal() and lanes.isdecimal() and 1 <= int(number) <= int(lanes)):
        raise pytest.UsageError(f"--lane {lane}: expected N/M with N from 1 to M, e.g. 1/2")
    kept = items[int(number) - 1 :: int(lanes)]
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    items[:] = kept
