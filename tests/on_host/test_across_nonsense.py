"""What a host tells of a step across hosts is that host's matter, however odd it is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from test_across_pure import STEP, parts

from pyinfra_gpu.engine.across_hosts import Trained, read
from pyinfra_gpu.engine.together import Together
from pyinfra_gpu.facts.verdict import AcrossVerdict


@pytest.mark.parametrize(
    "text", ["[" * 60_000, '{"run_id":' * 9_000, '{"run_id": "run", "journals": [{"rank": 1e999}]}']
)
def test_a_part_that_no_launcher_leaves_is_none(text: str) -> None:
    assert read(text, "run") is None


@pytest.mark.parametrize("odd", [None, 3, "x", [], {"a": []}, [[1]], float("nan"), "\x1b[2J"])
def test_facts_that_no_check_understands_are_their_hosts_failure(odd: Any) -> None:
    told = parts()
    journals = {
        rank: replace(each, facts=dict.fromkeys(each.facts, odd), seconds=odd)
        for rank, each in told["b"].journals.items()
    }
    trained = Trained(Together(set), STEP)
    document = trained._judged({**told, "b": replace(told["b"], journals=journals)})
    verdict = AcrossVerdict.read(json.dumps(document.as_json()))
    assert isinstance(verdict, AcrossVerdict), verdict
    assert verdict.failed is not None
    assert "b told something that cannot be judged" in verdict.failed.sentence


def test_a_sound_part_is_sound_by_itself() -> None:
    trained = Trained(Together(set), STEP)
    assert all(trained._is_sound(host, part) for host, part in parts().items())
