"""How the tests on throwaway hosts are shared out among processes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import lanes
import pytest
from lane_queue import PACE, Queue
from lanes import Lane, LaneError, Measuring, Plan, Test, Weights, lane_of, units_of

WEIGHTS = Weights(
    units={"test_long.py": 100, "test_two.py::test_a": 60, "test_two.py": 30, "test_gpu.py": 50},
    fixtures={"proven": 40, "gpu": 70},
)


COSTS = {"lab": 40, "gpu": 40}


def collected(name: str, *fixtures: str) -> Test:
    return Test(id=f"tests/rehearsal/{name}", fixtures=frozenset({*fixtures, "tmp_path"}))


TESTS = [
    collected("test_long.py::test_x[one]", "proven"),
    collected("test_long.py::test_x[two]", "proven"),
    collected("test_two.py::test_a[case]", "proven"),
    collected("test_two.py::test_b", "proven"),
    collected("test_gpu.py::test_c", "gpu"),
    collected("test_new.py::test_nobody_measured"),
]


@pytest.mark.parametrize("total", [1, 2, 3, 7])
def test_each_test_is_in_exactly_one_lane(total: int) -> None:
    each = [lane_of(f"{number}/{total}", TESTS, WEIGHTS) for number in range(1, total + 1)]
    assert sorted(id_ for lane in each for id_ in lane) == sorted(test.id for test in TESTS)


def test_a_file_stays_whole_and_a_function_that_was_set_apart_may_go_elsewhere() -> None:
    assert WEIGHTS.unit("tests/rehearsal/test_long.py::test_x[one]") == "test_long.py"
    assert WEIGHTS.unit("tests/rehearsal/test_two.py::test_a[case]") == "test_two.py::test_a"
    assert WEIGHTS.unit("tests/rehearsal/test_two.py::test_b") == "test_two.py"
    assert WEIGHTS.unit("tests/rehearsal/test_two.py::test_b[in/a/folder]") == "test_two.py"


def shares(tests: list[Test], total: int, weights: Weights) -> list[set[str]]:
    return Plan(units_of(tests, weights), [Lane()] * total, weights).shares()


def test_lanes_are_balanced_and_a_fixture_is_paid_for_once_a_lane() -> None:
    # 100 + 40 for its fixture, and 30 + 30 that add none; beside that 60 + 40 and 50 + 70.
    first, second = shares(TESTS, 2, WEIGHTS)
    assert first == {"test_long.py", "test_two.py", "test_new.py"}
    assert second == {"test_two.py::test_a", "test_gpu.py"}


def test_tests_that_stand_on_the_same_hosts_come_together_though_each_would_begin_elsewhere() -> (
    None
):
    names = {each: [f"test_{each}{number}.py" for number in range(15)] for each in ("lab", "gpu")}
    weights = Weights(units={name: 60 for both in names.values() for name in both}, fixtures=COSTS)
    tests = [collected(f"{name}::test_x", each) for each, own in names.items() for name in own]
    assert sorted(map(sorted, shares(tests, 2, weights))) == sorted(map(sorted, names.values()))


@pytest.mark.parametrize("lane", ["", "0/2", "3/2", "1", "a/b", "1/0", "-1/2"])
def test_a_lane_that_is_none_is_refused(lane: str) -> None:
    with pytest.raises(LaneError, match="--lane takes N/M"):
        lane_of(lane, TESTS, WEIGHTS)


def test_what_a_fixture_of_the_session_takes_is_not_the_tests_own_time() -> None:
    measuring = Measuring(WEIGHTS)
    measuring.add_fixture(TESTS[0].id, "proven", 40)
    measuring.add(TESTS[0].id, 45)
    measuring.add(TESTS[1].id, 10)
    assert measuring.units == {"test_long.py": 15}
    assert measuring.fixtures == {"proven": 40}


def test_a_lane_that_is_at_work_gets_less_and_one_that_has_the_fixture_gets_what_needs_it() -> None:
    units = units_of(TESTS, WEIGHTS)
    two = [Lane(0.0, frozenset({"gpu"})), Lane(180.0, frozenset({"proven"}))]
    first, second = Plan(units, two, WEIGHTS).shares()
    assert "test_gpu.py" in first
    # 100 + 40 for its fixture, 60 and 50 that add none; beside that 180 + 60: 250 and 240.
    assert sum(units[name].seconds for name in second) == 60


FILES = [f"test_{kind}{number}.py" for kind in ("lab", "gpu") for number in range(7)]
MANY = Weights(units={name: 10 + 7 * (n % 5) for n, name in enumerate(FILES)}, fixtures=COSTS)
UNITS = units_of([collected(f"{name}::test_x", name[5:8]) for name in FILES], MANY)


def run_dry(file: Path, seconds: Mapping[str, float]) -> tuple[list[str], list[float], int]:
    """Let three lanes, one of which comes late, take from a queue until it is empty.

    Returns all that they took, when they ended, and how often one paid for a fixture.
    """
    free, now = {1: 0.0, 2: 0.0, 3: 200.0}, 0.0
    there: dict[int, set[str]] = {lane: set() for lane in free}
    taken, ends, paid = [], [], 0
    while free:
        lane = min(free, key=free.__getitem__)
        now = free[lane]
        unit = Queue(file, lane, max(lane, 2), UNITS, MANY, clock=lambda: now).take()  # noqa: B023
        if unit is None:
            ends.append(free.pop(lane))
            continue
        taken.append(unit)
        new = UNITS[unit].fixtures - there[lane]
        paid += len(new)
        there[lane] |= new
        free[lane] += (seconds[unit] + sum(COSTS[name] for name in new)) / PACE
    return taken, ends, paid


@pytest.mark.parametrize("seed", range(5))
def test_lanes_that_take_from_a_queue_run_each_unit_once_and_end_together(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever each takes for real: half of what was measured, or one and a half times that."""
    monkeypatch.setattr(lanes, "ORDERS", 50)
    chance = random.Random(seed)
    seconds = {name: unit.seconds * chance.uniform(0.5, 1.5) for name, unit in UNITS.items()}
    taken, ends, paid = run_dry(tmp_path / "queue", seconds)
    assert sorted(taken) == sorted(UNITS)
    assert max(ends) - min(ends) <= (max(seconds.values()) + max(COSTS.values())) / PACE
    assert paid <= 4


def test_the_last_lane_takes_what_others_that_have_ended_have_left(tmp_path: Path) -> None:
    def lane(number: int, at: float) -> Queue:
        return Queue(tmp_path / "queue", number, 2, units, WEIGHTS, clock=lambda: at)

    units = units_of([collected("test_two.py::test_b", "gpu")], WEIGHTS)
    assert lane(1, 0.0).take() == "test_two.py"
    assert [lane(2, 1.0).take(), lane(2, 2.0).is_empty(), lane(1, 3.0).take()] == [None, True, None]
    units |= units_of([collected("test_gpu.py::test_c", "gpu")], WEIGHTS)
    (tmp_path / "queue").unlink()
    assert lane(1, 0.0).take() == "test_gpu.py"
    assert lane(2, 119 / PACE).take() is None  # it would pay for what the other has
    assert not lane(2, 119 / PACE).is_empty()
    assert [lane(1, 120 / PACE).take(), lane(1, 150 / PACE).take()] == ["test_two.py", None]


PLUGIN = """
import sys
from pathlib import Path
import lanes
import pytest
from lane_queue import FromQueue, Queue
from lanes import Unit, Weights

class Shared:
    def pytest_collection_modifyitems(self, config, items):
        names = ("test_a.py", "test_b.py", "test_c.py")
        units = {name: Unit(seconds) for seconds, name in enumerate(names)}
        queue = Queue(Path(sys.argv[1]), 1, 1, units, Weights(units={}, fixtures={}))
        unit_of = lambda id: id.partition("::")[0].rpartition("/")[2]
        config.pluginmanager.register(FromQueue(queue, unit_of))

sys.exit(pytest.main(["-p", "no:cacheprovider", *sys.argv[2:]], plugins=[Shared()]))
"""
FIXTURES = """
import pytest
@pytest.fixture(scope="session")
def whole():
    print("WHOLE BEGINS")
    yield
    print("WHOLE ENDS")

@pytest.fixture(scope="module")
def part():
    print("PART BEGINS")
    yield
    print("PART ENDS")
"""
CASES = "def test_1(whole, part): print('1')\ndef test_2(whole, part): print('2')\n"


def test_fixtures_of_a_module_end_with_its_unit_and_those_of_the_session_with_the_lane(
    tmp_path: Path,
) -> None:
    (tmp_path / "conftest.py").write_text(FIXTURES)
    for name in "abc":
        (tmp_path / f"test_{name}.py").write_text(CASES)
    words = [str(tmp_path / "queue"), "-s", "-p", "no:terminal", str(tmp_path)]
    program = [sys.executable, "-c", PLUGIN, *words]
    path = str(Path(__file__).parents[1] / "rehearsal")
    done = subprocess.run(
        program, cwd=tmp_path, env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    part = ["PART BEGINS", "1", "2", "PART ENDS"]
    assert done.stdout.splitlines() == ["WHOLE BEGINS", *part * 3, "WHOLE ENDS"]
    taken = [json.loads(line)["unit"] for line in (tmp_path / "queue").read_text().splitlines()]
    assert taken == ["test_c.py", "test_b.py", "test_a.py", None]
