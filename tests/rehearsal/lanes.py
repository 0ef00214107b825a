"""Which tests of this folder each of some processes runs: shares of equal length, measured.

    python -m pytest tests/rehearsal --lane 1/2        the first of two shares
    python -m tests.suite all --measure-lanes          the whole suite, and lanes.json anew

lanes.json holds what each unit, a test file or a test function of one, and each fixture of a
session take of a processor, in seconds: lanes share the cores, so that is what they compete for. A
lane pays for a fixture where the first of its units needs it, so units that stand on the same hosts
come together as long as that makes the whole shorter.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
class _Unit:
    seconds: float
    fixtures: set[str] = field(default_factory=set)


def _length(names: Iterable[str], units: Mapping[str, _Unit], weights: Weights) -> float:
    """Return the seconds that a lane takes with the units NAMES."""
    fixtures = set().union(*(units[name].fixtures for name in names))
    own = sum(units[name].seconds for name in names)
    return own + sum(weights.fixtures[name] for name in fixtures)


def _dealt(
    order: Sequence[str],
    total: int,
    units: Mapping[str, _Unit],
    homes: Mapping[str, int],
    length: Callable[[set[str]], float],
) -> list[set[str]]:
    """Return lanes to which units were dealt in ORDER, each to where it ends soonest.

    + homes: fixture -> the lane, from 0, that the units which need it come to
    """
    lanes: list[set[str]] = [set() for _ in range(total)]
    for name in order:
        numbers = {homes[each] for each in units[name].fixtures & homes.keys()} or range(total)
        allowed = [lanes[number] for number in sorted(numbers)]
        min(allowed, key=lambda lane: length({*lane, name})).add(name)
    return lanes


def shares(tests: Sequence[Test], total: int, weights: Weights) -> list[set[str]]:
    """Return the units of each of TOTAL lanes, the same ones whoever asks.

    Units are dealt to the lanes in some hundred orders, the longest first and then at random. Every
    other time each fixture has a lane, to which come those that need it: one after the other they
    would not, while what each would pay for it elsewhere is less than waiting for the others. That
    is taken whose longest lane is the shortest.
    """
    units: dict[str, _Unit] = {}
    for test in tests:
        name = weights.unit(test.id)
        unit = units.setdefault(name, _Unit(weights.units.get(name, UNMEASURED_S)))
        unit.fixtures |= test.fixtures & weights.fixtures.keys()

    def length(names: set[str]) -> float:
        return _length(names, units, weights)

    order = sorted(units, key=lambda name: (-units[name].seconds, name))
    chance = random.Random(0)
    tried = [_dealt(order, total, units, {}, length)]
    for number in range(ORDERS):
        homes = {name: chance.randrange(total) for name in sorted(weights.fixtures)}
        mixed = chance.sample(order, len(order))
        tried.append(_dealt(mixed, total, units, homes if number % 2 else {}, length))
    return min(tried, key=lambda lanes: sorted(map(length, lanes), reverse=True))


def lane_of(lane: str, tests: Sequence[Test], weights: Weights | None = None) -> set[str]:
    """Return the ids of the tests in LANE, "N/M".

    Raises LaneError where N is not 1 to M.
    """
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", lane)
    if match is None or int(match[1]) > int(match[2]):
        raise LaneError(f"--lane takes N/M, from 1/M to M/M, and not {lane!r}")
    known = weights or Weights.load()
    units = shares(tests, int(match[2]), known)[int(match[1]) - 1]
    return {test.id for test in tests if known.unit(test.id) in units}


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
