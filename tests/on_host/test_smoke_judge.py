"""Every check on sound facts, and on each wrong one that it must notice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyinfra_gpu.on_host.smoke.check import (
    Check,
    Judged,
    complete,
    decide,
    first_failed,
    judged,
)
from pyinfra_gpu.on_host.smoke.journal import HOST as OWN
from pyinfra_gpu.on_host.smoke.journal import Journal
from pyinfra_gpu.on_host.smoke.table import checks_of
from tests.on_host.smoke_facts import HOST, WANT, breakages, broken, card, launchers, sound

CHECKS = {check.id: check for check in checks_of("gpu")}


@pytest.mark.parametrize("check_id", CHECKS)
def test_sound_facts_pass(check_id: str) -> None:
    check = CHECKS[check_id]
    own = {0: {**sound(0), **launchers()}}
    facts = own if check.of_host else {0: sound(0), 1: sound(1)}
    found = judged(check, WANT, facts)
    assert found.status == "pass", found.detail


@pytest.mark.parametrize(("check", "status", "changes", "words"), [*breakages()])
def test_what_is_wrong_is_noticed(check: str, status: str, changes: str, words: str) -> None:
    facts: dict[str, Any] = {"host": {**sound(0), **launchers()}, "card": card(1)}
    facts |= {"rank0": sound(0), "rank": sound(1)}
    broken(facts, changes)
    want = replace(WANT, gpu_host={**HOST, "gpus": [card(0), facts["card"]]})
    asked = CHECKS[check]
    given = {0: facts["host"]} if asked.of_host else {0: facts["rank0"], 1: facts["rank"]}
    found = judged(asked, want, given)
    assert (found.status, words in found.detail) == (status, True), found.detail


def test_one_gpu_alone_is_not_judged_by_what_only_two_can_show() -> None:
    want = replace(WANT, ranks=1, gpus=1, mode="rehearsal-1gpu")
    facts = {0: {**sound(0), **launchers()}}
    facts[0]["transport"]["ways"] = []
    for check in ("S4.bandwidth", "S4.transport"):
        assert judged(CHECKS[check], want, facts).status == "skip", check
    assert judged(CHECKS["S1.cuda"], want, facts).status == "pass"


def test_each_of_several_hosts_has_its_own_path_of_one_torch() -> None:
    want, facts = replace(WANT, hosts={"box": 1, "x": 1}), {0: sound(0), 1: sound(1)}
    facts[1]["identity"] |= {"host": "x", "boot_id": "x", "torch_path": "/elsewhere"}
    assert judged(CHECKS["S1.import"], want, facts).status == "pass"
    facts[1]["identity"] |= {"torch": "3"}
    assert "x has torch 3" in judged(CHECKS["S1.import"], want, facts).detail


def test_torch_of_a_source_build_takes_the_toolkits_libraries() -> None:
    facts = {0: sound(0)}
    facts[0]["libraries"]["own"]["libnccl"] = []
    facts[0]["libraries"]["mapped"]["libnccl"] = ["/usr/lib/libnccl.so.2"]
    assert judged(CHECKS["S1.libraries"], WANT, facts).status == "pass"


def test_without_a_compiler_a_host_without_a_gpu_still_trains() -> None:
    want, facts = replace(WANT, mode="rehearsal-cpu"), {0: sound(0)}
    facts[0]["compile"] = {"error": "InvalidCxxCompiler"}
    assert judged(CHECKS["S3.compile"], want, facts).status == "warn"


# -- the checks of a run together


def _journal(rank: int, *facts: str) -> Journal:
    known = {**launchers(), **sound(0)} if rank == OWN else sound(rank)
    return Journal(rank, facts={name: known[name] for name in facts})


def _of(*ids: str) -> list[Check]:
    return [CHECKS[check_id] for check_id in ids]


def test_a_check_waits_for_the_facts_of_all() -> None:
    checks, own = _of("S4.store", "S4.training_step"), Journal(OWN)
    assert decide(checks, WANT, own, {0: _journal(0, "store")}) == {}
    # What is sound on one rank alone has not passed, and the end of the other is to blame.
    end = Judged("fail", "rank 1 was killed", 1)
    results = decide(checks, WANT, own, {0: _journal(0, "store")}, end)
    reported = [(each.status, each.detail, each.seconds) for each in complete(checks, results)]
    assert reported[0] == ("fail", "rank 1 was killed", None)
    assert reported[1] == ("skip", "not reached, S4.store failed", None)
    both = {0: _journal(0, "store"), 1: _journal(1, "store")}
    assert [*decide(checks, WANT, own, both)] == ["S4.store"]
    results = decide(checks, WANT, own, both, end)  # nobody measured the loss, and all is over
    assert [each.status for each in complete(checks, results)] == ["pass", "fail"]


@pytest.mark.parametrize("rank", [0, 1])
def test_sound_facts_of_one_rank_alone_neither_pass_nor_fail(rank: int) -> None:
    known = {**sound(rank), "compile": {}}  # on the CPU one rank compiles for all
    alone = {rank: Journal(rank, facts=known)}
    of_ranks = [check for check in CHECKS.values() if not check.of_host]
    assert decide(of_ranks, WANT, Journal(OWN), alone, Judged("pass", "")) == {}


def test_wrong_data_of_one_rank_says_more_than_its_peers_lost_connection() -> None:
    checks, wrong = _of("S4.store", "S4.collectives"), _journal(1, "collectives")
    next(iter(wrong.facts["collectives"].values()))["wrong"] = "Mismatched"
    ranks = {0: _journal(0), 1: wrong}
    assert decide(checks, WANT, Journal(OWN), ranks) == {}
    results = decide(checks, WANT, Journal(OWN), ranks, Judged("fail", "a lost connection", 0))
    failed = first_failed(results)
    assert failed is not None
    assert (failed.id, failed.rank) == ("S4.collectives", 1)


def test_a_failure_closes_later_stages_but_not_what_looks_back() -> None:
    checks = _of("S0.shm", "S1.import", "S5.leftovers")
    own = _journal(OWN, "identity", *launchers())
    own.facts["shm"]["error"] = "full"
    results = complete(checks, decide(checks, WANT, own, {}))
    assert [each.status for each in results] == ["fail", "skip", "pass"]
    assert results[1].detail == "not reached, S0.shm failed"


def test_a_failure_outranks_what_is_unknown() -> None:
    checks, own = _of("S0.gpu_processes", "S0.shm"), _journal(OWN, *launchers())
    own.facts["gpu_host"]["processes"] = [["1", "C", "x"]]
    own.facts["shm"]["error"] = "full"
    failed = first_failed(decide(checks, WANT, own, {}))
    assert failed is not None
    assert failed.id == "S0.shm"
