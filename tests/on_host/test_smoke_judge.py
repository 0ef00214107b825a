"""Every check on made-up facts: it passes on sound ones and fails on each kind of wrong one."""

from __future__ import annotations

from typing import Any

import pytest
from pyinfra_gpu.on_host.smoke.judge import ranks, single
from pyinfra_gpu.on_host.smoke.judge.check import Expected, Finding

from tests.on_host.rank_facts import EXPECTED, TORCH, WRONGS, sound


def _decide(facts: dict[int, dict[str, Any]]) -> dict[str, Finding]:
    return {check.id: check.decide(facts, EXPECTED) for check in ranks.CHECKS}


def test_rank_facts_pass_every_check() -> None:
    findings = _decide({0: sound(0), 1: sound(1)})
    assert [check_id for check_id, finding in findings.items() if not finding.ok] == []


@pytest.mark.parametrize("name", WRONGS)
def test_what_is_wrong_is_noticed_by_its_check_alone(name: str) -> None:
    damage, noticing, words = WRONGS[name]
    facts = {0: sound(0), 1: sound(1)}
    if name == "the same data":  # both ranks must tell the same story
        facts[0]["gradients"]["gathered_sha256"] = ["local0", "local0"]
    damage(facts[1])
    findings = {key: found for key, found in _decide(facts).items() if not found.ok}
    assert list(findings) == noticing
    assert words in findings[noticing[0]].detail
    assert findings[noticing[0]].detail


def test_every_check_is_among_those_shown_to_fail() -> None:
    shown = {check for _, noticing, _ in WRONGS.values() for check in noticing}
    assert shown == {check.id for check in ranks.CHECKS}


def test_without_a_compiler_the_compiled_step_is_skipped_and_says_so() -> None:
    facts = {0: sound(0), 1: sound(1)}
    facts[1]["compiled_step"] = {"compiled": False}
    found = _decide(facts)["S4.compiled_step"]
    assert (found.ok, found.status) == (True, "skip")


def test_objects_are_not_sent_where_torch_has_no_numpy_to_pack_them_by() -> None:
    """The package index's wheels do not ask for it: S4.object_list failed on such a host."""
    facts = {0: sound(0), 1: sound(1)}
    for fact in facts.values():
        fact["object_list"] = {"without_numpy": 2}
    found = _decide(facts)["S4.object_list"]
    assert (found.ok, found.status) == (True, "skip")
    assert "no NumPy" in found.detail


def test_a_collective_that_this_torchs_gloo_lacks_is_skipped_by_all_ranks_or_fails() -> None:
    """A torch 2.6 built from source failed: its gloo has no reduce_scatter."""
    facts = {0: sound(0), 1: sound(1)}
    lacks = {"elements": 0, "wrong": 0, "unsupported": "ProcessGroupGloo does not support ..."}
    facts[1]["reduce_scatter"] = lacks
    assert not _decide(facts)["S4.reduce_scatter"].ok
    facts[0]["reduce_scatter"] = lacks
    found = _decide(facts)["S4.reduce_scatter"]
    assert (found.ok, found.status) == (True, "skip")
    assert "gloo has no reduce_scatter" in found.detail


_LOCATION = {
    "found": "/venv/lib/torch",
    "packages": "/venv/lib",
    "version": "2.13.0+cpu",
    "python": "/venv/bin/python",
    "by_pythonpath": False,
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"found": None}, "/venv/bin/python finds no torch, expected it in /venv/lib"),
        ({"found": "/home/torch"}, "import torch would take /home/torch"),
        ({"found": "/home/torch", "by_pythonpath": True}, "remove PYTHONPATH"),
    ],
)
def test_a_torch_from_elsewhere_is_noticed_before_it_is_imported(
    changes: dict[str, Any], words: str
) -> None:
    check = single.SINGLE_CHECKS[0]
    assert check.decide({0: {"torch_location": _LOCATION}}, EXPECTED).ok
    found = check.decide({0: {"torch_location": {**_LOCATION, **changes}}}, EXPECTED)
    assert not found.ok
    assert words in found.detail


def test_a_process_that_imports_another_torch_is_noticed() -> None:
    check = single.SINGLE_CHECKS[1]
    assert check.decide({0: sound(0)}, EXPECTED).ok
    wrong = sound(0)
    wrong["identity"]["torch"] = "2.12.0"
    assert "process 0 imported torch 2.12.0" in check.decide({0: wrong}, EXPECTED).detail


@pytest.mark.parametrize("ended", [{"code": 1, "unfinished": []}, {"code": 0, "unfinished": [1]}])
def test_a_run_that_did_not_end_well_is_not_finished(ended: dict[str, Any]) -> None:
    assert ranks.FINISHED.decide({0: {"ended": {"code": 0, "unfinished": []}}}, EXPECTED).ok
    assert not ranks.FINISHED.decide({0: {"ended": ended}}, EXPECTED).ok


def test_no_predicted_drop_is_a_failure_and_not_a_division_by_zero() -> None:
    facts = {0: sound(0), 1: sound(1)}
    for fact in facts.values():
        fact["gradients"]["norm_squared"] = 0.0
    assert not _decide(facts)["S4.loss_drop"].ok


def test_more_than_two_ranks_say_that_the_mean_is_compared_with_a_bound() -> None:
    facts = {0: sound(0), 1: sound(1)}
    expected = Expected(ranks=3, allreduce_mib=4, torch=TORCH, removed=[])
    check = next(check for check in ranks.CHECKS if check.id == "S4.grad_bitwise")
    assert "no fixed order" in check.decide(facts, expected).detail
