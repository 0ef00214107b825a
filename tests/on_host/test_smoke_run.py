"""The smoke test for real on a sound host, and what ends it, in its own right or from outside."""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyinfra_gpu.stacks.bundle import smoke_bundle
from tests.on_host import smoke_runs
from tests.on_host.preloaded import UNCOMPILED
from tests.on_host.smoke_runs import (
    FAILED,
    PASSED_BUT_NOT_PROOF,
    UNKNOWN,
    Plan,
    Run,
    processes_of,
)

pytestmark = pytest.mark.torch

PLANS = {
    "sound": Plan(allreduce_mib=64, deadline=600),
    "three ranks": Plan(ranks=3, environment=UNCOMPILED, preloaded=True),
    "stray variables": Plan(
        environment={**UNCOMPILED, "NCCL_P2P_DISABLE": "1", "MASTER_PORT": "12355"}
    ),
}


@pytest.mark.parametrize("plan", ["sound"])
def test_a_sound_machine_passes_with_every_figure(plan: str, runs: Callable[[str], Run]) -> None:
    run = runs(plan)
    assert run.code == PASSED_BUT_NOT_PROOF, run.output
    verdict = run.verdict
    assert (verdict["status"], verdict["proof"]) == ("pass", False)
    assert {check["status"] for check in verdict["checks"]} == {"pass"}
    assert 0.99 < verdict["metrics"]["taylor_ratio"] < 1.01
    assert {entry["bytes"] for entry in verdict["metrics"]["allreduce"]} >= {4, 4096, 2**20, 2**26}
    assert [rank["exit"] for rank in verdict["ranks"]] == [0, 0]
    assert (verdict["fingerprint"], verdict["mode"]) == ("c0ffee", "rehearsal-cpu")
    assert all(line.startswith("[rehearsal-cpu] ") for line in run.output.splitlines())
    assert max(map(len, run.output.splitlines())) <= 80
    assert [stage["status"] for stage in verdict["stages"]] == ["pass"] * 6
    assert sum(stage["seconds"] for stage in verdict["stages"]) <= verdict["duration_s"]
    assert (verdict["evidence"], verdict["reruns"], verdict["deadline_extra_s"]) == (None, [], 0)
    assert not (Path(verdict["logs"]) / "compiled").exists()


@pytest.mark.parametrize("plan", ["sound"])
def test_the_command_to_run_it_again_by_hand_is_a_whole_one(
    plan: str, runs: Callable[[str], Run]
) -> None:
    run = runs(plan)
    command = shlex.split(run.verdict["rerun_command"])
    assert command[1:5] == [
        str(run.directory / "smoke_test.pyz"),
        "--mode",
        "rehearsal-cpu",
        "--host",
    ]
    again = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert again.stdout is not None
    assert any("S0.disk" in line for line in iter(again.stdout.readline, ""))  # it runs
    again.terminate()
    again.communicate(timeout=300)
    assert (run.directory / "verdict.by-hand.json").exists()


@pytest.mark.parametrize("plan", ["stray variables"])
def test_stray_variables_are_kept_from_the_ranks_and_degrade_the_result(
    plan: str, runs: Callable[[str], Run]
) -> None:
    run = runs(plan)
    assert (run.verdict["status"], run.code) == ("warn", PASSED_BUT_NOT_PROOF), run.output
    assert run.check("S0.environment")["measured"] == ["MASTER_PORT", "NCCL_P2P_DISABLE"]
    assert "MASTER_PORT, NCCL_P2P_DISABLE" in run.check("S0.environment")["detail"]
    assert run.status("S4.environment") == "pass"
    assert "WARN S0.environment" in run.output


@pytest.mark.parametrize("plan", ["three ranks"])
def test_three_ranks_pass_with_a_rounding_bound_in_place_of_bits(
    plan: str, runs: Callable[[str], Run]
) -> None:
    run = runs(plan)
    assert run.code == PASSED_BUT_NOT_PROOF, run.output
    bitwise = next(check for check in run.verdict["checks"] if check["id"] == "S4.grad_bitwise")
    assert bitwise["measured"]["compared"] == "rounding bound"


def test_a_torch_that_pythonpath_puts_first_is_refused_before_any_rank_starts(
    python: str, tmp_path: Path
) -> None:
    fake = tmp_path / "elsewhere" / "torch"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("raise SystemExit('the wrong torch was imported')")
    path = {"PYTHONPATH": str(fake.parent)}
    plan = Plan(environment=path)
    process = smoke_runs.start(python, tmp_path, smoke_bundle(), plan)
    output, _ = process.communicate(timeout=300)
    run = Run(process.returncode, output, tmp_path)
    assert (run.code, run.passed) == (FAILED, False)
    assert run.verdict["failed"]["id"] == "S1.torch"
    assert "remove PYTHONPATH" in run.verdict["failed"]["sentence"]
    assert run.verdict["environment"]["removed"] == path
    assert run.verdict["ranks"] == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_whoever_ends_the_launcher_ends_all_ranks_and_leaves_whole_files(
    number: signal.Signals, python: str, tmp_path: Path
) -> None:
    plan = Plan(allreduce_mib=64, environment=UNCOMPILED)
    process = smoke_runs.start(python, tmp_path, smoke_bundle(), plan)
    journals = [tmp_path / "verdict.json.logs" / f"rank{rank}.jsonl" for rank in (0, 1)]
    limit = time.monotonic() + 300
    while not all(path.exists() and "torch_path" in path.read_text() for path in journals):
        assert time.monotonic() < limit, "the ranks did not start"
        time.sleep(0.05)
    assert len(processes_of(tmp_path)) >= 4  # launcher, torchrun, two ranks
    process.send_signal(number)
    output, _ = process.communicate(timeout=120)
    limit = time.monotonic() + 30
    while processes_of(tmp_path) and time.monotonic() < limit:
        time.sleep(0.05)
    assert processes_of(tmp_path) == []
    if number == signal.SIGKILL:
        assert not (tmp_path / "verdict.json").exists()
    else:
        run = Run(process.returncode, output, tmp_path)
        assert (run.code, run.verdict["status"]) == (UNKNOWN, "unknown")
        assert run.verdict["failed"]["sentence"] == "the test was interrupted by SIGTERM"


def test_a_second_test_on_the_same_host_waits_for_the_first(python: str, tmp_path: Path) -> None:
    locked = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(locked, fcntl.LOCK_EX)
        process = smoke_runs.start(python, tmp_path, smoke_bundle())
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert any("waiting for another smoke test on this host to end" in line for line in lines)
        process.terminate()
        output, _ = process.communicate(timeout=120)
    finally:
        os.close(locked)
    assert process.returncode == FAILED
    assert "another smoke test still runs" in output
    assert not (tmp_path / "verdict.json").exists()
