"""A fault at a boundary of a run: the next run converges, the one after changes nothing.

A random share, whose seed is in the ids; `benchmarks/fault_matrix.py` tries them all. Again:

    PYINFRA_GPU_FAULT_SEED=4711                         the same share
    PYINFRA_GPU_FAULTS=deploy:37:before:power,...       these cases and no others
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from attempt import Attempt
from boundaries import (
    FAULTS,
    Case,
    Numbered,
    Scenario,
    cases_of,
    driver_update,
    fresh_deploy,
    undisturbed,
)
from gate import Gate
from running import GPU_HOST, ON_HOST, Deployer, Run

from pyinfra_gpu_rehearsal import Lab, LabHost

pytestmark = pytest.mark.rehearsal

SEED = int(os.environ.get("PYINFRA_GPU_FAULT_SEED") or random.SystemRandom().randrange(10**6))
NAMED = [Case.read(text) for text in os.environ.get("PYINFRA_GPU_FAULTS", "").split(",") if text]
SHARE = ("deploy", "deploy", "update")
WANTED = NAMED or range(len(SHARE))
# The host may be asked once more, or less, whether it is back from its reboot.
LAST = 2


def test_the_gate_lets_programs_and_files_through_as_they_are(gpu_lab: Lab, tmp_path: Path) -> None:
    gate = Gate(gpu_lab.fresh(GPU_HOST))
    gate.install()
    there = ["-F", str(gpu_lab.ssh_config)]
    program = (ON_HOST / "exchange.sh").read_text()
    given = "a line\n" + "\0\377 and more" * 5000
    ran = subprocess.run(
        ["ssh", *there, GPU_HOST, program], input=given, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 7
    assert ran.stderr == "$HOME \"quoted\" 'twice'\n"
    assert ran.stdout == "a line|none|root\n" + given.partition("\n")[2]
    file = tmp_path / "file"
    file.write_bytes(bytes(range(256)) * 500)
    words = ["sftp", "-q", "-b", "-", *there, GPU_HOST]
    moves = f"put {file} there\nget there {file}.back\n"
    subprocess.run(words, input=moves, capture_output=True, text=True, check=True)
    assert Path(f"{file}.back").read_bytes() == file.read_bytes()
    first, second = gate.commands()
    assert (first.number, first.text) == (1, program.rstrip("\n"))
    assert (second.number, "sftp" in second.text) == (2, True)


@pytest.fixture(scope="module")
def scenarios(
    gpu_lab: Lab, gpu_deployer: Deployer, gpu_converged: Callable[[], LabHost]
) -> dict[str, Scenario]:
    """Return what is disturbed here, by its name."""
    found = [
        fresh_deploy(gpu_lab, gpu_deployer),
        driver_update(gpu_lab, gpu_deployer.folder, gpu_converged),
    ]
    return {each.name: each for each in found}


@pytest.fixture(scope="module")
def runs(gpu_numbered: tuple[Run, Numbered], scenarios: dict[str, Scenario]) -> dict[str, Numbered]:
    """Return the commands of both where nobody disturbs them, by the name of the scenario."""
    run, update = undisturbed(scenarios["update"])
    assert run.code == 0, run.output
    return {"deploy": gpu_numbered[1], "update": update}


def _chosen(index: int, runs: dict[str, Numbered]) -> Case:
    """Return one of the share at random: before any command, or at any time within a long one."""
    scenario, chance = SHARE[index], random.Random(f"{SEED} {index}")
    run = runs[scenario]
    fault = random.Random(SEED).sample(FAULTS, len(SHARE))[index]
    moment = chance.choice(("before", "within"))
    cases = [case for case in cases_of(scenario, run) if case.number <= len(run.commands) - LAST]
    kind = [case for case in cases if (case.moment, case.fault) == (moment, fault)]
    weights = [run.seconds(case.number) if moment == "within" else 1.0 for case in kind]
    return chance.choices(kind, weights)[0]


@pytest.mark.parametrize(
    "wanted", WANTED, ids=[str(each) if NAMED else f"seed-{SEED}-{each}" for each in WANTED]
)
def test_a_run_that_meets_a_fault_is_finished_by_the_next_one(
    wanted: Case | int, scenarios: dict[str, Scenario], runs: dict[str, Numbered]
) -> None:
    case = _chosen(wanted, runs) if isinstance(wanted, int) else wanted
    run = runs[case.scenario]
    print(f"PYINFRA_GPU_FAULTS={case} : {run.commands[case.number - 1].words[:200]}")
    attempt = Attempt(scenarios[case.scenario], run, case)
    problems = attempt.problems()
    print(attempt.output)
    assert problems == [], case
