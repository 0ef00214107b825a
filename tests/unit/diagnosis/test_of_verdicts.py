"""What the diagnosis takes of a verdict: its evidence, and the advice for a check."""

from __future__ import annotations

from typing import Any

import pytest
import verdicts

from pyinfra_gpu.diagnosis import advice as smoke_advice
from pyinfra_gpu.diagnosis.evidence import of_file, of_verdict
from pyinfra_gpu.diagnosis.explained import ended_by_the_test
from pyinfra_gpu.stacks import StacksError


def test_advice_is_for_checks_that_there_are() -> None:
    from pyinfra_gpu.on_host.smoke import across
    from pyinfra_gpu.on_host.smoke.plans import checks_of

    known = {check.id for check in (*across.CHECKS, *checks_of("gpu"))}
    assert set(smoke_advice.known()) <= {name.rpartition(".")[2] for name in known}


def test_advice_that_is_given_twice_or_says_nothing_is_refused() -> None:
    entry = "one:\n  checks: [finite]\n  fix: ['do this']\n  source: made up\n"
    assert smoke_advice.read_advice(entry) == {"finite": ("do this",)}
    for wrong in (entry + entry.replace("one:", "two:"), entry.replace("['do this']", "[]"),
                  entry.replace("  source: made up\n", ""), entry + "  more: x\n"):  # fmt: skip
        with pytest.raises(StacksError, match=r"catalogue/checks\.yaml"):
            smoke_advice.read_advice(wrong)


def test_evidence_is_read_as_far_as_it_is_evidence() -> None:
    text = '[{"source": "rank", "rank": 1, "text": "a"}, {"rank": 2}, 3, {"text": "b"}]'
    assert [(each.text, each.rank) for each in of_file(text)] == [("a", 1), ("b", None)]
    assert of_file('[{"text": "cut o') == []
    assert of_file("3") == []
    assert of_file("[" * 60_000) == []


@pytest.mark.parametrize(
    ("check", "sentence", "ended"),
    [
        ({}, "rank 0 reports world_size 3", True),
        ({"seconds": None}, "rank 1 was ended by signal 9 (SIGKILL)", False),
        ({"seconds": None}, "rank 1 was still at 'init' after 150 s (the deadline)", True),
    ],
    ids=["measured", "killed", "deadline"],
)
def test_torchruns_log_is_no_evidence_where_the_test_itself_ended_it(
    check: dict[str, Any], sentence: str, ended: bool
) -> None:
    failed = verdicts.failed("S4.x", sentence)
    verdict = verdicts.verdict(
        status="fail", failed=failed, checks=[verdicts.check("S4.x", "fail", **check)]
    )
    assert ended_by_the_test(verdict) is ended
    text = '[{"source": "torchrun", "text": "got signal: 15"}, {"source": "rank", "text": "a"}]'
    assert len(of_file(text, ended=ended)) == (1 if ended else 2)


def test_the_verdicts_own_lines_stand_in_for_evidence() -> None:
    failed = verdicts.failed("S4.x", "it raised", rank=1, tail=["line 38", "line 39"])
    (source,) = of_verdict(verdicts.verdict(status="fail", failed=failed))
    assert (source.rank, source.text.splitlines()[-1]) == (1, "line 39")
    assert of_verdict(verdicts.verdict()) == []
