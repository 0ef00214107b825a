"""The smoke test by itself: from the controller, and by hand on the host."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import PATIENCE_S, Deployer, OnlySmoke

from pyinfra_gpu_rehearsal import Lab, LabHost

pytestmark = pytest.mark.rehearsal

FOLDER = "/opt/pyinfra-gpu/smoke"
STATE = "/opt/pyinfra-gpu/state"
PYTHON = "/opt/pyinfra-gpu/venv/bin/python"


@pytest.fixture(scope="module")
def alone(proven: Callable[[str], LabHost], deployer: Deployer, lab: Lab) -> OnlySmoke:
    """Return what tests the hosts, without the half-minute of compiling."""
    del proven
    return OnlySmoke(lab, deployer.folder)


@pytest.mark.night
def test_the_command_that_the_verdict_prints_runs_the_test_by_hand(
    proven: Callable[[str], LabHost],
) -> None:
    host = proven("gpu1")
    verdict = json.loads(host.run(f"cat {STATE}/verdict.json").stdout)
    command = verdict["rerun_command"]
    done = host.run(command, root=False, check=False, timeout=PATIENCE_S)
    assert done.returncode == 3, done.stdout  # passed, and is not proof of a GPU host
    assert verdict["fingerprint"] in host.run(f"cat {FOLDER}/stamp.json").stdout


MISSING = "libcudart.so.13: cannot open shared object file: No such file or directory"


def test_what_has_passed_is_not_tested_again_unless_asked_and_then_says_why_it_fails(
    alone: OnlySmoke, proven: Callable[[str], LabHost]
) -> None:
    host = proven("gpu1")
    assert alone.converge(limit="gpu1").changed("gpu1") == []
    torch = f"{Path(PYTHON).parents[1]}/lib/python3*/site-packages/torch/__init__.py"
    text = f"import os\nif os.environ.get('RANK') == '1': raise ImportError({MISSING!r})\n"
    host.run(f"cp -p {torch} /tmp/torch.py && cat >> $(echo {torch})", root=False, stdin=text)
    run = alone.deploy("--data", "smoke=always", limit="gpu1")
    host.run(f"cp -p /tmp/torch.py $(echo {torch})", root=False)
    assert run.code == 1, run.output
    verdict: dict[str, Any] = run.report["hosts"]["gpu1"]["smoke"]
    assert verdict["failed"]["id"].startswith("S1."), verdict["failed"]
    assert "ImportError" in verdict["failed"]["sentence"]
    cause = verdict["diagnosis"]["found"][0]
    assert "libcudart.so.13" in cause["line"]
    assert cause["short"] in " ".join(run.output.split())
    assert host.run(f"test -e {FOLDER}/stamp.json", check=False).returncode == 1
    assert alone.converge(limit="gpu1").changed("gpu1") == ["smoke: run the smoke test, 2 ranks"]
