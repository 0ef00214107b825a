"""How the tests on throwaway hosts are shared out among processes."""

from __future__ import annotations

import pytest
from lanes import LaneError, Measuring, Test, Weights, lane_of, shares

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
    lanes = [lane_of(f"{number}/{total}", TESTS, WEIGHTS) for number in range(1, total + 1)]
    assert sorted(id_ for lane in lanes for id_ in lane) == sorted(test.id for test in TESTS)


def test_a_file_stays_whole_and_a_function_that_was_set_apart_may_go_elsewhere() -> None:
    assert WEIGHTS.unit("tests/rehearsal/test_long.py::test_x[one]") == "test_long.py"
    assert WEIGHTS.unit("tests/rehearsal/test_two.py::test_a[case]") == "test_two.py::test_a"
    assert WEIGHTS.unit("tests/rehearsal/test_two.py::test_b") == "test_two.py"
    assert WEIGHTS.unit("tests/rehearsal/test_two.py::test_b[in/a/folder]") == "test_two.py"


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
