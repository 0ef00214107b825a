"""Why a smoke test failed: by what it left, or by its own figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import verdicts

from pyinfra_gpu.diagnosis.explained import explained, of_file
from pyinfra_gpu.facts.parse import parse

PROBE = Path(__file__).parents[1] / "fixtures" / "probe" / "ubuntu2404-2x-rtx5090.txt"
SOUND = parse(PROBE.read_text().splitlines())


def test_evidence_is_read_as_far_as_it_is_evidence() -> None:
    text = '[{"source": "rank", "rank": 1, "text": "a"}, {"text": "b"}]'
    assert of_file(text) == {"rank 1": "a", "log": "b"}
    two = '[{"rank": 1, "text": "a"}, {"rank": 1, "text": "b"}, {"rank": 0, "text": "c"}]'
    assert of_file(two) == {"rank 1": "a\nb", "rank 0": "c"}
    for odd in ('[{"text": "cut o', "3", '[{"text": "a"}, {"rank": 2}]', "[" * 60_000):
        assert of_file(odd) == {}


FULL = "OSError: [Errno 28] No space left on device"
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
EVIDENCE = f'[{{"source": "torchrun", "text": "{FULL}"}}, {{"rank": 1, "text": "{MEMORY}"}}]'


@pytest.mark.parametrize(
    ("check", "sentence", "evidence", "name", "tail"),
    [
        ({}, "1 element is wrong", EVIDENCE, "smoke-data-wrong", []),
        ({"seconds": None}, "rank 1 raised", EVIDENCE, "disk-full", []),
        ({"seconds": None}, "still there (the deadline)", EVIDENCE, "cuda-out-of-memory", []),
        ({"seconds": None}, "rank 1 raised", "", "", ["line 38", "line 39"]),
    ],
    ids=["a figure", "the first log", "torchrun was ended by the test", "the verdict's own lines"],
)
def test_what_is_evidence_of_a_failure(
    check: dict[str, Any], sentence: str, evidence: str, name: str, tail: list[str]
) -> None:
    failed = verdicts.failed("S4.collectives", sentence, tail=["line 38", "  ^^^", "line 39"])
    checks = [verdicts.check("S4.collectives", "fail", **check)]
    verdict = verdicts.verdict(status="fail", failed=failed, checks=checks)
    reported = explained(verdict, SOUND, evidence)
    assert (reported.root.name if reported.root else "", reported.tail) == (name, tail)
    assert explained(verdicts.verdict(), SOUND).diagnosis is None
