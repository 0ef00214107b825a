"""Tests that some processes take from one queue, each its next unit when it has ended one.

    python -m pytest tests/rehearsal --lane 1/2 --queue FILE

Shares that are dealt beforehand end minutes apart: what a unit takes is not the same each time, nor
what others take of the machine meanwhile. Here each lane plans again whenever it is free, by what
is left, who is at work on what, and which fixtures are whose (`lanes.Plan`), and takes the longest
of its share. So all end about together, and one pays for a fixture that another has only where the
whole ends sooner for it.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
from lanes import Lane, Plan, Unit, Weights

PACE = 1 / 2
"""The seconds of a processor that a lane gets in one of the clock: four lanes share two."""


@dataclass(frozen=True)
class Taken:
    """A line of the queue's file.

    + lane: from 1
    + unit: what it took; None: it found nothing that others would not end sooner, and has ended
    + cost: the seconds it was to take, with fixtures
    + at: when, by the machine's clock that begins with its boot
    """

    lane: int
    unit: str | None
    cost: float
    at: float


@dataclass(frozen=True)
class Queue:
    """What all lanes take from.

    + file: made by the first that takes
    + lane: which of them this is, from 1
    + total: how many there are at least
    + units: all, by their names
    """

    file: Path
    lane: int
    total: int
    units: Mapping[str, Unit]
    weights: Weights
    clock: Callable[[], float] = time.monotonic

    def take(self) -> str | None:
        """Return the unit that this lane runs next; None where none is left for it."""
        with self._locked() as file:
            taken = [Taken(**json.loads(line)) for line in file]
            unit, cost = self._chosen(taken)
            file.write(json.dumps(vars(Taken(self.lane, unit, cost, self.clock()))) + "\n")
        return unit

    def is_empty(self) -> bool:
        """Tell whether nothing is left for anybody."""
        with self._locked() as file:
            return not self._left([Taken(**json.loads(line)) for line in file])

    @contextmanager
    def _locked(self) -> Iterator[IO[str]]:
        with self.file.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            yield file

    def _left(self, taken: Sequence[Taken]) -> dict[str, Unit]:
        gone = {each.unit for each in taken}
        return {name: unit for name, unit in self.units.items() if name not in gone}

    def _chosen(self, taken: Sequence[Taken]) -> tuple[str | None, float]:
        """Return this lane's next unit and its cost.

        Those that have ended get nothing more, so that the last one takes all that is left.
        """
        ended = {each.lane for each in taken if each.unit is None}
        numbers = {*range(1, self.total + 1), *(each.lane for each in taken), self.lane} - ended
        lanes = {each: self._lane(each, taken) for each in sorted(numbers)}
        plan = Plan(self._left(taken), [*lanes.values()], self.weights)
        share = plan.shares()[[*lanes].index(self.lane)]
        own = lanes[self.lane].fixtures
        costs = {name: plan.cost(name, own) for name in sorted(share)}
        unit = max(costs, key=costs.__getitem__, default=None)
        return unit, costs[unit] if unit else 0.0

    def _lane(self, number: int, taken: Sequence[Taken]) -> Lane:
        own = [each for each in taken if each.lane == number and each.unit]
        fixtures = frozenset().union(*(self.units[each.unit].fixtures for each in own if each.unit))
        if not own or number == self.lane:
            return Lane(0.0, fixtures)
        spent = (self.clock() - own[-1].at) * PACE
        return Lane(max(own[-1].cost - spent, 0.0), fixtures)


class FromQueue:
    """Runs the units that a lane takes, in place of all that pytest has found."""

    def __init__(self, queue: Queue, unit_of: Callable[[str], str]) -> None:
        self.queue = queue
        self.unit_of = unit_of

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run them; None leaves it to pytest, which then says why nothing is run."""
        if session.testsfailed or session.config.option.collectonly:
            return None
        units: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in session.items:
            units[self.unit_of(item.nodeid)].append(item)
        while (unit := self.queue.take()) is not None:
            self._run(session, units[unit])
        return True

    def _run(self, session: pytest.Session, items: Sequence[pytest.Item]) -> None:
        for item, following in zip(items, [*items[1:], None], strict=True):
            after = following or self._elsewhere(session, item)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)

    def _elsewhere(self, session: pytest.Session, last: pytest.Item) -> pytest.Item | None:
        """Return what pytest is told comes after the last test of a unit.

        By that it decides what to take down: the module's fixtures, and those of the session only
        where nothing is left, which the lane is still to ask.
        """
        if self.queue.is_empty():
            return None
        return next((each for each in session.items if each.path != last.path), None)
