"""Which tests of this folder each of some processes runs, by what was measured.

    python -m pytest tests/rehearsal --lane 1/2        the first of two shares of equal length
    python -m tests.suite all                          each takes what comes next: lane_queue.py
    python -m tests.suite all --measure-lanes          the same, and lanes.json anew

lanes.json holds what each unit, a test file or a test function of one, and each fixture of a
session take of a processor, in seconds: lanes share the cores, so that is what they compete for. A
lane pays for a fixture where the first of its units needs it, so units that stand on the same hosts
come together as long as that makes the whole shorter.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

DATA = Path(__file__).with_name("lanes.json")
ORDERS = 300
UNMEASURED_S = 30.0  # a file that nobody has measured yet


class LaneError(Exception):
    """One sentence saying what is wrong with a lane that was asked for."""


@dataclass(frozen=True, kw_only=True)
class Test:
    """A test as pytest collected it.

    + id: "tests/rehearsal/test_ssh.py::test_x[y]"
    + fixtures: the names of all fixtures that it needs, indirectly too
    """

    __test__ = False

    id: str
    fixtures: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A processor's seconds: of each unit ("test_ssh.py", "test_drift.py::test_x") and fixture."""

    units: Mapping[str, float]
    fixtures: Mapping[str, float]

    @classmethod
    def load(cls) -> Weights:
        """Read what was measured."""
        known = json.loads(DATA.read_text(encoding="utf-8"))
        return cls(units=known["units"], fixtures=known["fixtures"])

    def unit(self, test_id: str) -> str:
        """Return the unit that the test belongs to: its function where that was set apart."""
        function = test_id.partition("[")[0].rpartition("/")[2]
        return function if function in self.units else function.partition("::")[0]


@dataclass
class Unit:
    """Tests that stay together.

    + seconds: what they take of a processor, without their fixtures
    + fixtures: those of the session that they need, as far as anybody has measured them
    """

    seconds: float
    fixtures: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Lane:
    """What a lane has before it takes more.

    + seconds: how long it is still at work
    + fixtures: those that are there, or will be then
    """

    seconds: float = 0.0
    fixtures: frozenset[str] = frozenset()


def units_of(tests: Iterable[Test], weights: Weights) -> dict[str, Unit]:
    """Return the units of the tests by their names."""
    units: dict[str, Unit] = {}
    for test in tests:
        name = weights.unit(test.id)
        unit = units.setdefault(name, Unit(weights.units.get(name, UNMEASURED_S)))
        unit.fixtures |= test.fixtures & weights.fixtures.keys()
    return units


@dataclass(frozen=True)
class Plan:
    """Deals units to lanes.

    + units: those that are left, by their names
    """

    units: Mapping[str, Unit]
    lanes: Sequence[Lane]
    weights: Weights

    def cost(self, name: str, fixtures: Set[str]) -> float:
        """Return the seconds of a unit where these fixtures are there, with the others it needs."""
        unit = self.units[name]
        missing = unit.fixtures - fixtures
        return unit.seconds + sum(self.weights.fixtures[each] for each in missing)

    def shares(self) -> list[set[str]]:
        """Return the units of each lane, the same ones whoever asks.

        Units are dealt to the lanes in some hundred orders, the longest first and then at random.
        Every other time each fixture has a lane, to which come those that need it: one after the
        other they would not, while what each would pay for it elsewhere is less than waiting for
        the others. That is taken whose longest lane is the shortest.
        """
        order = sorted(self.units, key=lambda name: (-self.units[name].seconds, name))
        chance = random.Random(0)
        best = self._dealt(order, {})
        for number in range(ORDERS):
            names = sorted(self.weights.fixtures)
            homes = {name: chance.randrange(len(self.lanes)) for name in names}
            mixed = chance.sample(order, len(order))
            best = min(best, self._dealt(mixed, homes if number % 2 else {}), key=itemgetter(0))
        return best[1]

    def _dealt(
        self, order: Sequence[str], homes: Mapping[str, int]
    ) -> tuple[list[float], list[set[str]]]:
        """Return the lengths of lanes, the longest first, to which units were dealt in ORDER.

        Each came to where it ends soonest. With them the units of each lane.

        + homes: fixture -> the lane, from 0, that the units which need it come to
        """
        lengths = [lane.seconds for lane in self.lanes]
        there = [set(lane.fixtures) for lane in self.lanes]
        shares: list[set[str]] = [set() for _ in self.lanes]
        for name in order:
            needed = self.units[name].fixtures
            numbers = {homes[each] for each in needed & homes.keys()} or range(len(shares))
            ends = {each: lengths[each] + self.cost(name, there[each]) for each in sorted(numbers)}
            soonest = min(ends, key=ends.__getitem__)
            lengths[soonest] = ends[soonest]
            there[soonest] |= needed
            shares[soonest].add(name)
        return sorted(lengths, reverse=True), shares


def lane_and_total(lane: str) -> tuple[int, int]:
    """Return both numbers of LANE, "N/M". Raises LaneError where N is not 1 to M."""
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", lane)
    if match is None or int(match[1]) > int(match[2]):
        raise LaneError(f"--lane takes N/M, from 1/M to M/M, and not {lane!r}")
    return int(match[1]), int(match[2])


def lane_of(lane: str, tests: Sequence[Test], weights: Weights | None = None) -> set[str]:
    """Return the ids of the tests in LANE, "N/M". Raises LaneError where N is not 1 to M."""
    number, total = lane_and_total(lane)
    known = weights or Weights.load()
    shares = Plan(units_of(tests, known), [Lane()] * total, known).shares()
    return {test.id for test in tests if known.unit(test.id) in shares[number - 1]}


@dataclass
class Measuring:
    """Collects the seconds of tests and of fixtures while they run."""

    weights: Weights
    units: dict[str, float] = field(default_factory=dict)
    fixtures: dict[str, float] = field(default_factory=dict)

    def add(self, test_id: str, seconds: float) -> None:
        """Note the seconds of a test's set-up, call or tear-down."""
        unit = self.weights.unit(test_id)
        self.units[unit] = self.units.get(unit, 0) + seconds

    def add_fixture(self, test_id: str, name: str, seconds: float) -> None:
        """Note the seconds of a session's fixture, which are part of the test's set-up."""
        self.fixtures[name] = seconds
        self.add(test_id, -seconds)

    def save(self) -> None:
        """Write lanes.json; what did not run keeps what was measured before."""
        before = Weights.load()
        units, fixtures = _rounded(self.units), _rounded(self.fixtures)
        known = {
            "units": dict(sorted({**before.units, **units}.items())),
            "fixtures": dict(sorted({**before.fixtures, **fixtures}.items())),
        }
        DATA.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value) for name, value in seconds.items() if round(value)}
