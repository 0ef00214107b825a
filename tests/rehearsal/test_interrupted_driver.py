"""A deploy of a fresh GPU host, ended at random points: the next run finishes it.

Three points in CI; `PYINFRA_GPU_KILLS=20` tries twenty (about a quarter of an hour).
"""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
from running import GPU_HOST, PATIENCE_S, Deployer, Run, usual_offer

from pyinfra_gpu_rehearsal import Lab, LabHost

pytestmark = pytest.mark.rehearsal

COUNT = int(os.environ.get("PYINFRA_GPU_KILLS", "3"))
SEED = int(os.environ.get("PYINFRA_GPU_KILL_SEED", "5090"))
_RANDOM = random.Random(SEED)
# One point in each slice of the run, so that few points still reach all of it.
POINTS = [(index + _RANDOM.random()) / COUNT for index in range(COUNT)]
# A reboot that was ordered just before the end begins two seconds later, with nobody there.
REBOOT_BEGINS_S = 3
CASES = [(point, ("controller", "power")[index % 2]) for index, point in enumerate(POINTS)]


@pytest.fixture(scope="module")
def whole_run_s(gpu_first: Run, gpu_lab: Lab) -> float:
    """Return how long a deploy of the fresh host takes undisturbed, in seconds."""
    usual_offer(gpu_lab)
    return gpu_first.seconds


def boots(host: LabHost) -> int:
    return host.run("last -x reboot").stdout.count("system boot")


@pytest.mark.parametrize(("point", "what"), CASES, ids=[f"{p:.2f}-{w}" for p, w in CASES])
def test_a_run_ended_anywhere_is_finished_by_the_next_one(
    point: float, what: str, whole_run_s: float, gpu_lab: Lab, gpu_deployer: Deployer
) -> None:
    gpu_lab.fresh(GPU_HOST)
    host = gpu_lab.host(GPU_HOST)
    process = gpu_deployer.start(limit=GPU_HOST)
    time.sleep(point * whole_run_s)
    if what == "power":
        host.power_off()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)
        host.power_on()
    else:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)
        time.sleep(REBOOT_BEGINS_S)
    host.wait_ready(PATIENCE_S)
    run = gpu_deployer.converge(limit=GPU_HOST)
    assert host.run("cat /sys/module/nvidia/version").stdout.strip() == "580.95.05", run.output
    assert gpu_deployer.converge(limit=GPU_HOST).changed(GPU_HOST) == []
    # Switched on once, rebooted once because nouveau had the cards, and the power cut itself.
    assert boots(host) <= 2 + (what == "power")
