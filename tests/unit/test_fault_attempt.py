"""Where the run after a fault is ended: at a milestone of the undisturbed run, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import attempt
import pytest
from attempt import Attempt, Milestone
from boundaries import Case, Numbered
from gate import Command
from host_state import HostState

SENT = ("look", "install a", "look", "install b", "look", "look")
COMMANDS = tuple(Command(number, text, 0.0) for number, text in enumerate(SENT, 1))


def state(*installed: str) -> HostState:
    return HostState({}, frozenset(installed))


MILESTONES = (
    Milestone(COMMANDS[2], "install a", state("a"), frozenset(), reboots=1),
    Milestone(COMMANDS[4], "install b", state("a", "b"), frozenset({"log"}), reboots=0),
)


@pytest.fixture
def next_run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SimpleNamespace]:
    """Return what lets a next run send COMMANDS, the host holding one state before each."""

    def run(number: int, states: list[HostState]) -> SimpleNamespace:
        done = SimpleNamespace(killed=False, opened=False, looked=[])
        sent: list[int] = []

        def commands() -> Any:
            for command in COMMANDS:
                sent.append(command.number)
                yield command

        def of(_: object) -> HostState:
            done.looked.append(sent[-1])
            return states[sent[-1] - 1]

        process = SimpleNamespace(poll=lambda: 0, kill=lambda: setattr(done, "killed", True))
        ended = SimpleNamespace(code=0, output="")
        deployer = SimpleNamespace(ended=lambda _: ended, deploy=lambda **_: ended)
        gate = SimpleNamespace(open=lambda: setattr(done, "opened", True))
        monkeypatch.setattr(attempt, "stepped", lambda *_: (process, commands()))
        monkeypatch.setattr(attempt.HostState, "of", of)
        monkeypatch.setattr(attempt, "settle", lambda _: 0.0)
        monkeypatch.setattr(attempt, "boots", lambda _: 4)
        case = Case("deploy", number, "before", "power")
        scenario: Any = SimpleNamespace(deployer=deployer)
        tried = Attempt(scenario, Numbered(COMMANDS, 1), case, None, MILESTONES)
        host: Any = SimpleNamespace(run=lambda *_, **__: SimpleNamespace(returncode=1))
        tried._next(host, gate)  # type: ignore[arg-type]
        done.milestone = tried.reached
        done.output, done.seen = tried.output, tried.seen
        return done

    return run


BARE, HALF, ALL = state(), state("a"), state("a", "b")


def test_a_next_run_is_ended_at_the_first_milestone_behind_its_boundary(next_run: Any) -> None:
    done = next_run(2, [BARE, BARE, HALF, HALF, ALL, ALL])
    assert (done.milestone, done.killed, done.looked) == (MILESTONES[0], True, [3])


def test_it_has_to_come_past_the_boundary_first(next_run: Any) -> None:
    done = next_run(3, [HALF, HALF, HALF, HALF, ALL, ALL])
    assert (done.milestone, done.killed, done.looked) == (MILESTONES[1], True, [5])


def test_whatever_is_different_lets_it_go_on_and_is_named(next_run: Any) -> None:
    done = next_run(2, [BARE, BARE, state("a", "torn"), ALL, state("a", "b", "log"), ALL])
    assert (done.milestone, done.looked) == (MILESTONES[1], [3, 5])
    assert "not as before 3: torn" in done.output
    torn = replace(MILESTONES[0], state=state("a", "torn"), reboots=4, case="deploy:2:before:power")
    assert done.seen == [torn]


@pytest.mark.parametrize("number", [2, 5])
def test_one_that_meets_no_milestone_goes_to_its_end_and_the_next_is_not_held(
    next_run: Any, number: int
) -> None:
    done = next_run(number, [BARE] * 6)
    assert (done.milestone, done.killed) == (None, False)
    assert done.opened == (number == 2)  # the last ones have no milestone to be held for


def recovered(monkeypatch: pytest.MonkeyPatch, changed: list[str]) -> Attempt:
    """Return an attempt whose next run came past two places by states that nobody knew."""
    case = Case("deploy", 2, "before", "reboot")
    run = SimpleNamespace(code=0, output="", changed=lambda _: changed)
    deployer = SimpleNamespace(deploy=lambda **_: run)
    scenario: Any = SimpleNamespace(deployer=deployer, driver="580")
    tried = Attempt(scenario, Numbered(COMMANDS, 1), case)
    host: Any = SimpleNamespace(
        gpu=SimpleNamespace(nouveau=lambda: True), run=lambda _: SimpleNamespace(stdout="580\n")
    )
    booted = iter([5, 6])  # before the next run, and behind it
    monkeypatch.setattr(attempt, "boots", lambda _: next(booted))

    def went(*_: object) -> Any:
        places = ((MILESTONES[0], 5), (MILESTONES[1], 6))  # with the boots until there
        tried.seen = [replace(each, state=state("b"), reboots=count) for each, count in places]
        return run

    monkeypatch.setattr(tried, "_next", went)
    tried._recovered(host, SimpleNamespace(), 4)  # type: ignore[arg-type]
    return tried


def test_what_a_run_held_on_its_way_to_a_good_end_is_as_good_as_a_milestone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = recovered(monkeypatch, []).seen
    assert [each.reboots for each in seen] == [1, 0]
    assert [each.command.number for each in seen] == [3, 5]


def test_on_the_way_to_any_other_end_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert recovered(monkeypatch, ["driver: write a file"]).seen == []
