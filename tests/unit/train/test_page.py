"""The runs of a host on the page: each with its curve, escaped; nothing where there are none."""

from __future__ import annotations

import re
from typing import Any

import pytest
from check_reports import host

from pyinfra_gpu.report.check.answer import Answer
from pyinfra_gpu.report.html.page import page
from pyinfra_gpu.report.train.answer import HostRuns, Run

LOSSES = tuple(3 + 8 / (1 + step / 4) for step in range(120))
NAME = "20261122-200000-balanced"


def run(**fields: Any) -> Run:
    words = {"step": "4,209/5,960", "loss": "2.7149", "speed": "368,417 tokens/s, MFU 47.6 %"}
    reported = {"run": NAME, "state": "running", "outcome": "running", "words": words}
    return Run.model_validate({**reported, "losses": LOSSES, **fields})


def section(*runs: Run, **fields: Any) -> str:
    answer = host("ws1")
    trained = {"ws1": HostRuns(name="ws1", runs=runs, **fields)}
    text = page(Answer(inventory="x", checked="", seconds=1, hosts=(answer,)), trained)
    _, found, rest = text.partition("<h3>Training runs</h3>")
    return rest.partition("</details>")[0] if found else ""


def test_a_run_stands_there_with_its_curve() -> None:
    text = section(run())
    assert NAME in text
    assert "step 4,209/5,960 · loss 2.7149 · speed 368,417 tokens/s, MFU 47.6 %" in text
    assert 'aria-label="Loss from 11 to 3.2' in text
    assert text.count("<polyline") == 1
    assert 'class="badge declared"' in text


def test_of_a_host_the_newest_runs_are_shown_the_newest_first_or_why_not() -> None:
    failed = run(run="20261121-x", state="ended", outcome="failed", wrong=True)
    text = section(*(run(run=f"r{n}") for n in range(4)), failed, run())
    assert text.index(NAME) < text.index("20261121-x") < text.index("r3")
    assert "r0" not in text
    assert re.search(r'class="badge drift">.*?failed', text)
    assert "They cannot be listed: &lt;script&gt;" in section(reason="<script>alert(1)</script>")
    assert section() == section(reason="there is no launcher", absent=True) == ""


@pytest.mark.parametrize("losses", [(3.0,), (2.0, 2.0), (1e9, 3.0, *([2.5] * 50))])
def test_a_curve_needs_two_points_and_keeps_within_its_picture(losses: tuple[float, ...]) -> None:
    _, drawn, points = section(run(losses=losses)).partition("<poly")
    assert bool(drawn) is (len(losses) > 1)
    assert all(0 <= float(y) <= 150 for y in re.findall(r"[\d.]+,([\d.]+)", points))
