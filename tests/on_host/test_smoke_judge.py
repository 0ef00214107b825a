"""Every check on made-up facts: it passes on sound ones and fails on each kind of wrong one."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest

from pyinfra_gpu.on_host.smoke import exactness, judge
from pyinfra_gpu.on_host.smoke.decisions import FINISHED, LEFTOVERS, Decisions
from pyinfra_gpu.on_host.smoke.failure import Failure
from pyinfra_gpu.on_host.smoke.journal import Journal
from pyinfra_gpu.on_host.smoke.torch_location import TorchLocation
from pyinfra_gpu.on_host.smoke.verdict import CheckResult

_TORCH = TorchLocation("/venv/lib/torch", "2.13.0+cpu", "/venv/lib")
_EXPECTED = judge.Expected(ranks=2, allreduce_mib=4, torch=_TORCH, removed=["NCCL_DEBUG"])
_LN_V = math.log(8192)


def _fine(elements: int = 8) -> dict[str, Any]:
    return {"elements": elements, "wrong": 0}


def _runs(item: int) -> dict[str, Any]:
    sizes = [size for size in exactness.sizes(4) for _ in range(exactness.REPEATS)]
    return {"runs": [{"size": size, "seconds": 0.1, **_fine(size // item)} for size in sizes]}


def _sound(rank: int) -> dict[str, Any]:
    return {
        "identity": {
            "rank": rank,
            "local_rank": rank,
            "world_size": 2,
            "pid": 100 + rank,
            "host": "box",
            "python": "/venv/bin/python",
            "torch": "2.13.0+cpu",
            "device": "cpu",
            "torch_path": "/venv/lib/torch/__init__.py",
        },
        "environment": [],
        "store": {
            "class": "TCPStore",
            "host": "127.0.0.1",
            "port": 4711,
            "agent_pid": 99,
            "master_addr": "127.0.0.1",
            "master_port": 4711,
            "server_pid": 99,
            "server_threads": ["pt_tcpstore_uv", "pt_tcpstore_uv"],
        },
        "allreduce_float32": _runs(4),
        "allreduce_bfloat16": _runs(2),
        "broadcast": _fine(),
        "all_gather": _fine(),
        "reduce_scatter": _fine(),
        "send_recv": _fine(),
        "parameters_before": {"sha256": "aa"},
        "gradients": {
            "elements": 50,
            "averaged": 50,
            "norm_squared": 0.25,
            "non_finite": 0,
            "wrong": 0,
            "local_sha256": f"local{rank}",
            "gathered_sha256": ["local0", "local1"],
            "sha256": "bb",
        },
        "step": {
            "lr": 0.08,
            "loss_before": _LN_V + 0.01,
            "loss_after": _LN_V - 0.0099,
            "non_finite": 0,
        },
        "parameters_after": {"sha256": "cc"},
    }


def _decide(facts: dict[int, dict[str, Any]]) -> dict[str, judge.Finding]:
    return {check.id: check.decide(facts, _EXPECTED) for check in judge.CHECKS}


def test_sound_facts_pass_every_check() -> None:
    findings = _decide({0: _sound(0), 1: _sound(1)})
    assert [check_id for check_id, finding in findings.items() if not finding.ok] == []
    assert findings["S0.environment"].detail == "removed for this run: NCCL_DEBUG"


Break = Callable[[dict[str, Any]], object]
_WRONG = {"wrong": 3, "first": [7, 1.0, 2.0]}

# what is wrong on rank 1 -> the only checks that may notice, the first of them with these words
WRONGS: dict[str, tuple[Break, list[str], str]] = {
    "a stray variable": (
        lambda fact: fact["environment"].append("LD_PRELOAD"),
        ["S0.environment"],
        "rank 1 was started with LD_PRELOAD set",
    ),
    "another torch version": (
        lambda fact: fact["identity"].update(torch="2.12.0"),
        ["S4.torch"],
        "rank 1 imported torch 2.12.0",
    ),
    "a torch from elsewhere": (
        lambda fact: fact["identity"].update(torch_path="/home/me/torch/__init__.py"),
        ["S4.torch"],
        "from /home/me/torch",
    ),
    "a wrong rank": (lambda fact: fact["identity"].update(rank=0), ["S4.identity"], "rank 1"),
    "a wrong world size": (
        lambda fact: fact["identity"].update(world_size=4),
        ["S4.identity"],
        "reports rank 1, world_size 4, host box; expected rank 1, world_size 2, host box",
    ),
    "another host": (lambda fact: fact["identity"].update(host="x"), ["S4.identity"], "host x"),
    "the same process": (
        lambda fact: fact["identity"].update(pid=100),
        ["S4.identity"],
        "two ranks are the same process",
    ),
    "another store": (
        lambda fact: fact["store"].update(port=1),
        ["S4.store_address"],
        "rank 1 uses ['TCPStore', '127.0.0.1', 1]",
    ),
    "a file store": (
        lambda fact: fact["store"].update({"class": "FileStore", "host": None, "port": None}),
        ["S4.store_address"],
        "FileStore",
    ),
    "a server without libuv": (
        lambda fact: fact["store"].update(server_threads=["pt_tcpstore"]),
        ["S4.store_libuv"],
        "served by torchrun (pid 99), whose store threads are: pt_tcpstore",
    ),
    "a server with both": (
        lambda fact: fact["store"].update(server_threads=["pt_tcpstore", "pt_tcpstore_uv"]),
        ["S4.store_libuv"],
        "pt_tcpstore, pt_tcpstore_uv",
    ),
    "no server": (
        lambda fact: fact["store"].update(server_pid=None, server_threads=[]),
        ["S4.store_libuv"],
        "no process that listens on port 4711",
    ),
    "a wrong sum": (
        lambda fact: fact["allreduce_float32"]["runs"][7].update(_WRONG),
        ["S4.allreduce_exact"],
        "1 MiB float32, repeat 2: rank 1 has 3 of 262144 elements wrong, "
        "the first is element 7: 1.0 in place of 2.0",
    ),
    "a wrong sum in bf16": (
        lambda fact: fact["allreduce_bfloat16"]["runs"][0].update(_WRONG),
        ["S4.allreduce_exact_bf16"],
        "4 B bfloat16, repeat 1: rank 1 has 3 of 2 elements",
    ),
    "a size left out": (
        lambda fact: fact["allreduce_float32"]["runs"].pop(),
        ["S4.allreduce_exact"],
        "rank 1 did not compare every element of every size",
    ),
    "elements left out": (
        lambda fact: fact["allreduce_float32"]["runs"][-1].update(elements=1),
        ["S4.allreduce_exact"],
        "did not compare every element",
    ),
    "a wrong broadcast": (
        lambda fact: fact["broadcast"].update(_WRONG),
        ["S4.broadcast"],
        "broadcast: rank 1 has 3 of 8 elements wrong",
    ),
    "a wrong all-gather": (
        lambda fact: fact["all_gather"].update(_WRONG),
        ["S4.all_gather"],
        "all_gather: rank 1",
    ),
    "a wrong reduce-scatter": (
        lambda fact: fact["reduce_scatter"].update(_WRONG),
        ["S4.reduce_scatter"],
        "reduce_scatter: rank 1",
    ),
    "a wrong receive": (
        lambda fact: fact["send_recv"].update(_WRONG),
        ["S4.send_recv"],
        "send_recv: rank 1",
    ),
    "nothing compared": (
        lambda fact: fact["send_recv"].update(elements=0),
        ["S4.send_recv"],
        "rank 1 compared none",
    ),
    "other first parameters": (
        lambda fact: fact["parameters_before"].update(sha256="zz"),
        ["S4.params_initial"],
        "the ranks' parameters before the step are not the same bytes",
    ),
    "the same data": (
        lambda fact: fact["gradients"].update(
            local_sha256="local0", gathered_sha256=["local0", "local0"]
        ),
        ["S4.grad_local_differs"],
        "",
    ),
    "an exchange that changes gradients": (
        lambda fact: fact["gradients"].update(gathered_sha256=["local0", "other"]),
        ["S4.grad_local_differs"],
        "rank 1 did not receive the other ranks' local gradients unchanged",
    ),
    "a gradient that is not the mean": (
        lambda fact: fact["gradients"].update(_WRONG),
        ["S4.grad_bitwise"],
        "rank 1: 3 of 50 averaged gradient elements are not the mean",
    ),
    "a parameter without averaging": (
        lambda fact: fact["gradients"].update(averaged=40),
        ["S4.grad_bitwise"],
        "rank 1 left 10 gradient elements out",
    ),
    "other gradients": (
        lambda fact: fact["gradients"].update(sha256="zz"),
        ["S4.grad_equal"],
        "averaged gradients are not the same bytes",
    ),
    "an undefined gradient": (
        lambda fact: fact["gradients"].update(non_finite=2),
        ["S4.finite"],
        "rank 1 has infinite or undefined numbers: gradients 2",
    ),
    "an infinite parameter": (
        lambda fact: fact["step"].update(non_finite=1),
        ["S4.finite"],
        "parameters 1",
    ),
    "an undefined loss": (
        lambda fact: fact["step"].update(loss_after=math.nan),
        ["S4.finite", "S4.loss_drop"],
        "losses 1",
    ),
    "a first loss that is too good": (
        lambda fact: fact["step"].update(loss_before=8.0, loss_after=7.9801),
        ["S4.loss_initial"],
        "rank 1 starts at loss 8.0000, untrained it must be 9.0109",
    ),
    "a loss that stays": (
        lambda fact: fact["step"].update(loss_after=_LN_V + 0.01),
        ["S4.loss_drop"],
        "measured/predicted = 0.4975",
    ),
    "a loss that rises": (
        lambda fact: fact["step"].update(loss_after=_LN_V + 0.03),
        ["S4.loss_drop"],
        "measured/predicted = ",
    ),
    "other final parameters": (
        lambda fact: fact["parameters_after"].update(sha256="zz"),
        ["S4.params_equal"],
        "the ranks' parameters after the step are not the same bytes",
    ),
}


@pytest.mark.parametrize("name", WRONGS)
def test_what_is_wrong_is_noticed_by_its_check_alone(name: str) -> None:
    damage, noticing, words = WRONGS[name]
    facts = {0: _sound(0), 1: _sound(1)}
    if name == "the same data":  # both ranks must tell the same story
        facts[0]["gradients"]["gathered_sha256"] = ["local0", "local0"]
    damage(facts[1])
    findings = {key: found for key, found in _decide(facts).items() if not found.ok}
    assert list(findings) == noticing
    assert words in findings[noticing[0]].detail
    assert findings[noticing[0]].detail


def test_every_check_is_among_those_shown_to_fail() -> None:
    shown = {check for _, noticing, _ in WRONGS.values() for check in noticing}
    assert shown == {check.id for check in judge.CHECKS}


def test_no_predicted_drop_is_a_failure_and_not_a_division_by_zero() -> None:
    facts = {0: _sound(0), 1: _sound(1)}
    for fact in facts.values():
        fact["gradients"]["norm_squared"] = 0.0
    assert not _decide(facts)["S4.loss_drop"].ok


def test_more_than_two_ranks_say_that_the_mean_is_compared_with_a_bound() -> None:
    facts = {0: _sound(0), 1: _sound(1)}
    expected = judge.Expected(ranks=3, allreduce_mib=4, torch=_TORCH, removed=[])
    check = next(check for check in judge.CHECKS if check.id == "S4.grad_bitwise")
    assert "no fixed order" in check.decide(facts, expected).detail


# Decisions: the order of events


def _journals(*facts: dict[str, Any]) -> dict[int, Journal]:
    journals = {}
    for rank, fact in enumerate(facts):
        seconds = dict.fromkeys(fact, 0.5)
        journals[rank] = Journal(rank, pid=100 + rank, facts=copy.deepcopy(fact), seconds=seconds)
    return journals


def _decisions() -> tuple[Decisions, list[CheckResult]]:
    told: list[CheckResult] = []
    return Decisions(_EXPECTED, told.append), told


def test_a_check_is_decided_when_the_last_rank_has_its_facts_and_told_once() -> None:
    decisions, told = _decisions()
    later = _sound(1)
    early = {name: later[name] for name in ("identity", "environment")}
    decisions.update(_journals(_sound(0), early))
    assert [result.id for result in told] == ["S0.environment", "S4.torch", "S4.identity"]
    decisions.update(_journals(_sound(0), later))
    assert [result.id for result in told] == [check.id for check in judge.CHECKS]
    assert decisions.complete
    assert decisions.failed is None


def test_the_first_undecided_check_takes_the_blame_and_the_rest_were_not_reached() -> None:
    decisions, _ = _decisions()
    fact = {name: _sound(0)[name] for name in ("identity", "environment", "store")}
    decisions.update(_journals(fact, {**fact, "identity": _sound(1)["identity"]}))
    decisions.close(Failure("rank 1 (pid 101) was ended by signal 9 (SIGKILL)", 1))
    statuses = {result.id: result.status for result in decisions.results()}
    assert decisions.failed == "S4.allreduce_exact"
    assert decisions.failed_rank == 1
    assert [check for check, status in statuses.items() if status == "fail"] == [decisions.failed]
    assert statuses["S4.params_equal"] == statuses[FINISHED] == statuses[LEFTOVERS] == "skip"


def test_wrong_data_on_one_rank_is_blamed_before_the_peer_that_lost_its_connection() -> None:
    decisions, _ = _decisions()
    wrong = _sound(1)
    wrong["allreduce_float32"]["runs"][4].update(_WRONG)
    waiting = {name: _sound(0)[name] for name in ("identity", "environment", "store")}
    journals = _journals(waiting, wrong)
    decisions.update(journals)
    decisions.blame(journals)
    decisions.close(Failure("rank 0 raised: connection closed", 0))
    assert (decisions.failed, decisions.failed_rank) == ("S4.allreduce_exact", 1)


def test_one_rank_alone_is_never_blamed_for_what_only_all_ranks_show() -> None:
    decisions, told = _decisions()
    decisions.blame(_journals({}, _sound(1)))
    assert told == []


def test_a_failure_is_not_replaced_by_a_later_one() -> None:
    decisions, _ = _decisions()
    facts = [_sound(0), _sound(1)]
    facts[1]["gradients"]["sha256"] = "zz"
    facts[1]["parameters_after"]["sha256"] = "zz"
    decisions.update(_journals(*facts))
    decisions.close(Failure("the end", None))
    assert decisions.failed == "S4.grad_equal"
