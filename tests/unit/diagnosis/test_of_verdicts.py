"""The smoke test on one screen: a pass with its figures, a failure with its cause."""

from __future__ import annotations

from typing import Any

import pytest
import verdicts

from pyinfra_gpu.diagnosis.explained import ended_by_the_test, of_file, of_verdict


def test_evidence_is_read_as_far_as_it_is_evidence() -> None:
    text = '[{"source": "rank", "rank": 1, "text": "a"}, {"rank": 2}, 3, {"text": "b"}]'
    assert of_file(text) == {"rank 1": "a", "log": "b"}
    two = '[{"rank": 1, "text": "a"}, {"rank": 1, "text": "b"}, {"rank": 0, "text": "c"}]'
    assert of_file(two) == {"rank 1": "a\nb", "rank 0": "c"}
    assert of_file('[{"text": "cut o') == {}
    assert of_file("3") == {}
    assert of_file("[" * 60_000) == {}


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
    ((source, text),) = of_verdict(verdicts.verdict(status="fail", failed=failed)).items()
    assert (source, text.splitlines()[-1]) == ("rank 1", "line 39")
    assert of_verdict(verdicts.verdict()) == {}
