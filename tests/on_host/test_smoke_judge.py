"""Every check on sound facts, and on each wrong one that it must notice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pyinfra_gpu.on_host.smoke import bandwidth, libraries
from pyinfra_gpu.on_host.smoke.check import Board, Check, Judged, Want
from pyinfra_gpu.on_host.smoke.journal import Journal
from pyinfra_gpu.on_host.smoke.ranks import checks_of
from tests.on_host.smoke_facts import (
    HOST,
    ON_CARDS,
    ON_RANKS,
    ON_THE_HOST,
    WANT,
    Break,
    card,
    launchers,
    sound,
)

CHECKS = {check.id: check for check in checks_of("gpu")}


def judged(check: Check, facts: Mapping[int, Mapping[str, Any]], want: Want = WANT) -> Judged:
    try:
        return Judged("pass", check.judge(facts, want))
    except Judged as found:
        return found


@pytest.mark.parametrize("check_id", CHECKS)
def test_sound_facts_pass(check_id: str) -> None:
    facts = {0: {**sound(0), **launchers()}, 1: sound(1)}
    found = judged(CHECKS[check_id], facts)
    assert found.status == "pass", found.detail


@pytest.mark.parametrize(("wrong", "check", "status", "words"), ON_RANKS)
def test_what_is_wrong_on_one_rank_is_noticed(
    wrong: Break, check: str, status: str, words: str
) -> None:
    facts = {0: sound(0), 1: sound(1)}
    wrong(facts[1])
    found = judged(CHECKS[check], facts)
    assert (found.status, words in found.detail) == (status, True), found.detail


@pytest.mark.parametrize(("wrong", "check", "status", "words"), ON_THE_HOST)
def test_what_is_wrong_on_the_host_is_noticed(
    wrong: Break, check: str, status: str, words: str
) -> None:
    facts = launchers()
    wrong(facts)
    found = judged(CHECKS[check], {0: facts})
    assert (found.status, words in found.detail) == (status, True), found.detail


@pytest.mark.parametrize(("wrong", "check", "status", "words"), ON_CARDS)
def test_what_is_wrong_with_a_gpu_is_noticed(
    wrong: dict[str, Any], check: str, status: str, words: str
) -> None:
    want = replace(WANT, gpu_host={**HOST, "gpus": [card(0), {**card(1), **wrong}]})
    found = judged(CHECKS[check], {0: launchers()}, want)
    assert (found.status, words in found.detail) == (status, True), found.detail


def test_a_slow_link_is_told_with_both_rates() -> None:
    facts = {0: sound(0), 1: sound(1)}
    facts[0]["bandwidth"]["link"]["1"].update(gen=4, width=8)
    found = judged(CHECKS["S4.link"], facts)
    assert found.status == "warn"
    assert "GPU 1 runs at Gen4 x8 under load, it could at Gen5 x16 (16 of 63 GB/s)" in found.detail
    facts[0]["bandwidth"]["link"] = {}
    facts[0]["bandwidth"]["link_error"] = "no answer"
    assert "was not seen (no answer)" in judged(CHECKS["S4.link"], facts).detail


def test_one_gpu_alone_is_not_judged_by_what_only_two_can_show() -> None:
    want = replace(WANT, ranks=1, gpus=1, mode="rehearsal-1gpu")
    facts = {0: {**sound(0), **launchers()}}
    facts[0]["transport"]["ways"] = {}
    for check in ("S4.bandwidth", "S4.transport"):
        assert judged(CHECKS[check], facts, want).status == "skip", check
    assert judged(CHECKS["S1.cuda"], facts, want).status == "pass"


def test_nvlink_carries_more_than_the_pcie_link() -> None:
    want = replace(WANT, gpu_host={**HOST, "links": {"0-1": "NV18"}})
    facts = {0: {**sound(0), **launchers()}, 1: sound(1)}
    assert judged(bandwidth.CHECKS[1], facts, want).detail == "26.0 GB/s over NV18"
    assert "have NVLink, but NCCL uses SHM" in judged(CHECKS["S4.transport"], facts, want).detail


def test_torch_of_a_source_build_takes_the_toolkits_libraries() -> None:
    facts = {0: sound(0)}
    facts[0]["libraries"]["own"]["libnccl"] = []
    facts[0]["libraries"]["mapped"]["libnccl"] = ["/usr/lib/libnccl.so.2"]
    assert judged(libraries.CHECKS[1], facts).status == "pass"


# -- the board


def _journal(rank: int, *facts: str, **changes: Any) -> Journal:
    known = {name: sound(rank)[name] for name in facts}
    return Journal(rank, facts=known, seconds=dict.fromkeys(known, 0.1), **changes)


def _board(*ids: str) -> Board:
    return Board([CHECKS[check_id] for check_id in ids], WANT)


def test_a_check_waits_for_the_facts_of_all() -> None:
    board = _board("S4.store", "S4.loss_drop")
    board.update(board.checks, {0: _journal(0, "store")}, 2)
    assert board.undecided(board.checks) == list(board.checks)
    board.update(board.checks, {0: _journal(0, "store"), 1: _journal(1, "store")}, 2)
    assert [each.status for each in board.results()] == ["pass", "skip"]
    assert board.results()[1].detail == "not reached"


def test_wrong_data_of_one_rank_says_more_than_its_peers_lost_connection() -> None:
    board, wrong = _board("S4.store", "S4.allreduce_exact"), _journal(1, "all_reduce")
    wrong.facts["all_reduce"]["float32"][-1]["wrong"] = "Mismatched"
    board.update(board.checks, {0: _journal(0), 1: wrong}, 2)
    assert board.failed is None
    board.update(board.checks, {0: _journal(0), 1: wrong}, 2, ended=True)
    board.close(board.checks, "a connection was lost", 0)
    assert board.failed is not None
    assert (board.failed.id, board.failed.rank) == ("S4.allreduce_exact", 1)


def test_what_is_sound_on_one_rank_alone_has_not_passed() -> None:
    board = _board("S4.store")
    board.update(board.checks, {0: _journal(0, "store")}, 2, ended=True)
    assert board.undecided(board.checks) == list(board.checks)
    board.close(board.checks, "rank 1 was killed", 1)
    assert board.results()[0].seconds is None
    assert board.results()[0].detail == "rank 1 was killed"


def test_a_failure_closes_later_stages_but_not_what_looks_back() -> None:
    board = _board("S0.disk", "S2.libuv", "S5.leftovers")
    facts = {**launchers(), **sound(0)}
    facts["disk"]["free_mib"] = 1
    board.decide(board.checks, facts)
    assert [each.status for each in board.results()] == ["fail", "skip", "pass"]
    assert board.results()[1].detail == "not reached, S0.disk failed"


def test_a_failure_outranks_what_is_unknown() -> None:
    board, facts = _board("S0.gpu_processes", "S0.disk"), launchers()
    facts["gpu_host"]["processes"] = [{"pid": 1, "type": "C", "name": "x"}]
    facts["disk"]["free_mib"] = 1
    board.decide(board.checks, facts)
    assert board.failed is not None
    assert board.failed.id == "S0.disk"
