"""The whole test over two or more GPUs: the only run that proves a host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from full_run import Run, keep, run

from pyinfra_gpu.on_host.smoke.bandwidth import link_rate

pytestmark = [pytest.mark.gpu(2), pytest.mark.torch]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a whole run over all GPUs, whose evidence is kept."""
    made = run(tmp_path_factory.mktemp("run"), "gpu")
    print(keep(made))
    return made


def test_all_gpus_together_pass_and_that_is_a_proof(whole: Run) -> None:
    assert whole.checks("fail", "unknown") == {}
    assert whole.code in (0, 1)
    assert whole.verdict["proof"]
    assert len(whole.verdict["ranks"]) == len(whole.verdict["gpus"])


def test_it_ends_in_the_time_that_is_promised(whole: Run) -> None:
    assert whole.verdict["duration_s"] < 180


def test_bandwidth_link_and_way_are_measured(whole: Run) -> None:
    metrics: dict[str, Any] = whole.verdict["metrics"]
    assert metrics["transport"]
    assert not any(way.startswith("NET") for way in metrics["transport"])
    for seen in metrics["link"].values():
        assert seen["samples"] >= 1
        assert seen["gen"] is None or link_rate(seen)
    assert metrics["allreduce_busbw_gb_s"] > 0


def test_a_hidden_gpu_is_reported_and_the_test_sees_all_the_same(tmp_path: Path) -> None:
    made = run(tmp_path, "gpu", CUDA_VISIBLE_DEVICES="0")
    assert made.checks("fail", "unknown") == {}
    assert "CUDA_VISIBLE_DEVICES" in made.verdict["environment"]["removed"]
