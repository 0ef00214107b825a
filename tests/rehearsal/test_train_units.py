"""Runs as units of a user manager of systemd's: that nothing is left of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from training import TICK, Training, declare

from pyinfra_gpu_rehearsal import Lab, LabHost
from tests.night import by_night

pytestmark = pytest.mark.rehearsal

BROKEN_OFF = "urllib3.exceptions.IncompleteRead: IncompleteRead(7 bytes read, 13 expected)"
PRESETS = {
    "tick": TICK,
    "short": {**TICK, "arguments": {"steps": 2}},
    "stubborn": {**TICK, "arguments": {**TICK["arguments"], "stubborn": 1}},
    "ranks": {**TICK, "launch": "torchrun", "ranks": 2},
    "breaks": {**TICK, "arguments": {"steps": 2, "why": BROKEN_OFF}},
}


@pytest.fixture(scope="module")
def deployed(proven: Callable[[str], LabHost], lab: Lab) -> Training:
    return declare(lab, proven("gpu1"), PRESETS)


@pytest.fixture
def train(deployed: Training) -> Iterator[Training]:
    """Return the launcher of a host on which no run is on, before and after."""
    yield deployed
    deployed.end_all()


@pytest.mark.parametrize(("preset", "said"), [("tick", "stopped"), ("stubborn", "by SIGKILL")])
def test_stop_leaves_nothing_behind_when_the_grace_is_over_at_the_latest(
    preset: str, said: str, train: Training
) -> None:
    name = train.start(preset)
    train.until(lambda runs: runs[name]["last"])
    assert said in train("stop")
    assert train.left() == []
    assert "has ended already: stopped" in train("stop", name, code=1)


# Who is killed -> (its command line, what becomes of the run, the rank that failed first).
KILLED = {
    "the agent": ("^[^ ]*python -m torch.distributed.run", "failed", None),
    "a rank": ("^[^ ]*python -u tick.py", "failed", 0),
    "the supervisor": ("train supervise [0-9]", "lost", None),
}


@pytest.mark.parametrize("who", by_night(KILLED, ("a rank", "the supervisor")))
def test_nothing_is_left_where_somebody_kills(who: str, train: Training) -> None:
    pattern, outcome, first = KILLED[who]
    name = train.start("ranks")
    train.until(lambda runs: runs[name]["last"])
    train.kill(pattern)
    assert train.left() == []
    (attempt,) = train.until(lambda runs: runs[name]["state"] == "ended")[name]["attempts"]
    assert attempt["outcome"] == outcome
    if first is not None:
        assert attempt["first_failed_rank"] == first


def test_of_starts_one_gets_the_device_and_those_that_wait_keep_their_order(
    train: Training,
) -> None:
    name = train.start("tick")
    assert f"the CPU is taken by {name}" in train("start", "tick", "--unproven", code=1)
    waiting = [train.start("short", "--queue") for _ in range(2)]
    assert [train.runs()[each]["state"] for each in waiting] == ["queued"] * 2
    train("stop", name)
    runs = train.until(lambda runs: all(runs[each]["state"] == "ended" for each in waiting))
    first, second = (runs[each]["attempts"][0] for each in waiting)
    assert first["ended"] <= second["started"]


def test_a_failed_attempt_leaves_nothing_for_the_next_one_and_holds_nothing(
    train: Training,
) -> None:
    name = train.start("breaks", "--retries", "2")
    waits = train.until(lambda runs: runs[name]["state"] == "waiting")[name]["waits"]
    assert train.locks() == []
    assert "retry 1 of 2 after download-broke-off" in waits
    run = train.until(lambda runs: runs[name]["state"] == "ended")[name]
    reported = [(each["outcome"], each["cause"]) for each in run["attempts"]]
    assert reported == [("failed", "download-broke-off"), ("finished", None)]
    assert train.left() == []
