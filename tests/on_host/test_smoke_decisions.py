"""The order of events: which check is decided when, and which one takes the blame."""

from __future__ import annotations

import copy
from typing import Any

from pyinfra_gpu.on_host.smoke.judge import ranks
from pyinfra_gpu.on_host.smoke.judge.check import Check, Finding
from pyinfra_gpu.on_host.smoke.judge.decisions import Decisions
from pyinfra_gpu.on_host.smoke.judge.failure import Failure
from pyinfra_gpu.on_host.smoke.judge.verdict import CheckResult

from pyinfra_gpu.on_host.smoke.journal import Journal
from tests.on_host.rank_facts import EXPECTED, WRONG, sound


def _journals(*facts: dict[str, Any]) -> dict[int, Journal]:
    journals = {}
    for rank, fact in enumerate(facts):
        seconds = dict.fromkeys(fact, 0.5)
        journals[rank] = Journal(rank, pid=100 + rank, facts=copy.deepcopy(fact), seconds=seconds)
    return journals


_ALL = (*ranks.CHECKS, ranks.FINISHED)


def _decisions() -> tuple[Decisions, list[CheckResult]]:
    told: list[CheckResult] = []
    return Decisions(_ALL, EXPECTED, told.append), told


def test_a_check_is_decided_when_the_last_rank_has_its_facts_and_told_once() -> None:
    decisions, told = _decisions()
    later = sound(1)
    early = {name: later[name] for name in ("identity", "environment")}
    decisions.update(_ALL, _journals(sound(0), early), 2)
    assert [result.id for result in told] == ["S4.environment", "S4.torch", "S4.identity"]
    decisions.update(_ALL, _journals(sound(0), later), 2)
    assert [result.id for result in told] == [check.id for check in ranks.CHECKS]
    assert decisions.undecided(_ALL) == [ranks.FINISHED]
    assert not decisions.stopped


def test_only_the_given_checks_are_decided() -> None:
    decisions, told = _decisions()
    decisions.update(ranks.CHECKS[:2], _journals(sound(0), sound(1)), 2)
    assert [result.id for result in told] == [check.id for check in ranks.CHECKS[:2]]


def test_the_first_undecided_check_takes_the_blame_and_the_rest_were_not_reached() -> None:
    decisions, _ = _decisions()
    fact = {name: sound(0)[name] for name in ("identity", "environment", "store")}
    journals = _journals(fact, {**fact, "identity": sound(1)["identity"]})
    decisions.update(_ALL, journals, 2)
    decisions.close(_ALL, Failure("rank 1 (pid 101) was ended by signal 9 (SIGKILL)", 1))
    decisions.skip(_ALL)
    statuses = {result.id: result.status for result in decisions.results()}
    assert decisions.failed == "S4.allreduce_exact"
    assert decisions.failed_rank == 1
    assert [check for check, status in statuses.items() if status == "fail"] == [decisions.failed]
    assert statuses["S4.params_equal"] == statuses["S4.finished"] == "skip"
    assert decisions.results()[-1].detail == "not reached, S4.allreduce_exact failed"


def test_wrong_data_on_one_rank_is_blamed_before_the_peer_that_lost_its_connection() -> None:
    decisions, _ = _decisions()
    wrong = sound(1)
    wrong["allreduce_float32"]["runs"][4].update(WRONG)
    waiting = {name: sound(0)[name] for name in ("identity", "environment", "store")}
    journals = _journals(waiting, wrong)
    decisions.update(_ALL, journals, 2)
    decisions.blame(_ALL, journals)
    decisions.close(_ALL, Failure("rank 0 raised: connection closed", 0))
    assert (decisions.failed, decisions.failed_rank) == ("S4.allreduce_exact", 1)


def test_one_rank_alone_is_never_blamed_for_what_only_all_ranks_show() -> None:
    decisions, told = _decisions()
    decisions.blame(_ALL, _journals({}, sound(1)))
    assert told == []


def test_a_failure_is_not_replaced_by_a_later_one() -> None:
    decisions, _ = _decisions()
    facts = [sound(0), sound(1)]
    facts[1]["gradients"]["sha256"] = "zz"
    facts[1]["parameters_after"]["sha256"] = "zz"
    decisions.update(_ALL, _journals(*facts), 2)
    decisions.close(_ALL, Failure("the end", None))
    assert decisions.failed == "S4.grad_equal"


def test_behind_a_closed_gate_nothing_is_decided_but_what_looks_back() -> None:
    checks = [_answering(f"S{stage}.a", ok=stage != 1) for stage in (0, 1, 2, 4, 5)]
    decisions = Decisions(checks, EXPECTED, lambda _: None)
    decisions.decide(checks, {"fact": 1})
    decisions.skip(checks)
    statuses = [result.status for result in decisions.results()]
    assert statuses == ["pass", "fail", "skip", "skip", "pass"]


def _answering(check_id: str, **finding: Any) -> Check:
    answer = Finding(**{"ok": True, "measured": 0, "expected": 0, **finding})
    return Check(check_id, ("fact",), lambda *_: answer)


def test_a_warning_lets_the_run_go_on_and_what_is_unknown_does_not() -> None:
    checks = [
        _answering("S0.a", status="warn"),
        _answering("S0.b", status="skip"),
        _answering("S0.c", ok=False, status="unknown"),
        _answering("S0.d", ok=False),
    ]
    decisions = Decisions(checks, EXPECTED, lambda _: None)
    decisions.decide(checks[:2], {"fact": 1}, 0.5)
    assert not decisions.stopped
    decisions.decide(checks[:3], {"fact": 1})
    assert (decisions.stopped, decisions.failed) == (True, "S0.c")
    decisions.decide(checks, {"fact": 1})
    assert decisions.failed == "S0.d"  # what is known to be wrong says more
    statuses = [result.status for result in decisions.results()]
    assert statuses == ["warn", "skip", "unknown", "fail"]
    assert decisions.results()[0].seconds == 0.5
