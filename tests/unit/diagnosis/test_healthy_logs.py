"""What healthy hosts and runs print names no failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyinfra_gpu.diagnosis.matcher import explain

LOGS = {path.stem: path.read_text() for path in (Path(__file__).parent / "healthy").glob("*.log")}
REMARKS = {"training": [("NCCL-30", "warn")]}  # a script that leaves its process group open


@pytest.mark.parametrize("name", sorted(LOGS))
def test_a_healthy_log_names_no_cause(name: str) -> None:
    found = [(finding.id, finding.kind) for finding in explain(LOGS[name]).findings]
    assert found == REMARKS.get(name, [])


def test_all_of_them_one_after_the_other_name_none_either() -> None:
    assert len(LOGS) >= 5
    found = explain("".join(text for _, text in sorted(LOGS.items())))
    assert [finding for finding in found.findings if finding.kind == "root"] == []
