"""A fault before command N of a run: the next run converges, the one after changes nothing.

sshd on the host hands each command to a gate (gate.py), which holds the one at which the fault is
to come. By night; `make test` cuts runs off in test_faults.py.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import pytest
from drifts import R580
from gate import Gate
from running import GPU_HOST, PATIENCE_S, Deployer, OnlyDriver, usual_offer

from pyinfra_gpu_rehearsal import Lab, LabError, LabHost
from tests.forked import Process

pytestmark = [pytest.mark.rehearsal, pytest.mark.night]

BOOT_S = 300.0
REBOOT_BEGINS_S = 3  # a reboot that was ordered just before begins two seconds later
FAULTS = ("controller killed", "network cut", "power cut", "disk full", "rebooted")
COMMANDS = {"deploy": 63, "update": 15}
"""About as many commands as a run sends; where it ends before, nothing is left to try."""
CASES = [
    (scenario, number, FAULTS[(number - 2) % len(FAULTS)])
    for scenario, last in COMMANDS.items()
    for number in range(1, last + 1)
]
"""Every command meets a fault; the faults take turns."""


class Scenario(NamedTuple):
    """A run, how its host is prepared, and the driver that is loaded at its end."""

    prepared: Callable[[], LabHost]
    deployer: Deployer
    driver: str


@pytest.fixture(scope="module")
def scenarios(
    gpu_lab: Lab, gpu_deployer: Deployer, gpu_converged: Callable[[], LabHost]
) -> dict[str, Scenario]:
    """Return a deploy of the bare host, and an update of the driver of one that is as declared."""
    newest = R580[-1]
    update = OnlyDriver(gpu_lab, gpu_deployer.folder, ("--data", f"driver_version={newest}"))

    def bare() -> LabHost:
        usual_offer(gpu_lab)
        return gpu_lab.fresh(GPU_HOST)

    def declared() -> LabHost:
        host = gpu_converged()
        gpu_lab.nvidia.offer(*R580)
        return host

    return {
        "deploy": Scenario(bare, gpu_deployer, "580.95.05"),
        "update": Scenario(declared, update, newest),
    }


def when_up(host: LabHost, act: Callable[[], object]) -> None:
    """Do it; where the host reboots just then because it was told to, as soon as it is back."""
    try:
        act()
    except LabError:
        host.wait_ready(BOOT_S)
        act()


@pytest.fixture
def healed(gpu_lab: Lab) -> Iterator[None]:
    """Take what a test has done to the network and the disk of the host away again."""
    yield
    host = gpu_lab.host(GPU_HOST)
    host.network("restore")
    with suppress(LabError):
        host.free_disk()


def strike(fault: str, host: LabHost, gate: Gate, number: int, run: Process) -> str:
    """Let the fault happen while the command waits; return what the run said that met it."""
    if fault in ("controller killed", "power cut"):
        if fault == "power cut":
            host.power_off()
        run.send_signal(signal.SIGKILL)
        said = run.communicate(timeout=PATIENCE_S)[0]
        host.power_on()
    else:
        if fault == "network cut":
            host.network("cut")
        elif fault == "rebooted":
            when_up(host, gate.open)
            when_up(host, host.reboot)
        else:
            when_up(host, host.fill_disk)
            when_up(host, gate.open)
            when_up(host, lambda: gate.decide(number, run=True))
        said = run.communicate(timeout=PATIENCE_S)[0]
        host.network("restore")
        when_up(host, host.free_disk)
        assert "Traceback" not in said, said
        assert run.returncode in (0, 1), said
    if fault in ("controller killed", "network cut"):
        time.sleep(REBOOT_BEGINS_S)
        held = "flock --wait 60 /run/pyinfra-gpu/lease true"  # by the run that was cut off
        when_up(host, lambda: host.run(held, check=False))
    host.wait_ready(BOOT_S)
    gate.open()
    if fault in ("controller killed", "network cut"):
        gate.decide(number, run=False)
    return said


@pytest.mark.parametrize(("scenario", "number", "fault"), CASES)
def test_a_run_that_meets_a_fault_is_finished_by_the_next_one(
    scenario: str, number: int, fault: str, scenarios: dict[str, Scenario], healed: None
) -> None:
    prepared, deployer, driver = scenarios[scenario]
    host = prepared()
    gate = Gate(host)
    gate.install(hold=number)
    run = deployer.start(limit=GPU_HOST)
    try:
        command = gate.wait_for(number, run)
        if command is None:
            assert run.communicate()[0]
            return
        print(f"before command {number}: {command.splitlines()[-1][:200]}")
        print(strike(fault, host, gate, number, run))
    finally:
        run.kill()
    deployer.converge(limit=GPU_HOST)
    assert host.run("cat /sys/module/nvidia/version").stdout.strip() == driver
    again = deployer.converge(limit=GPU_HOST)
    assert again.changed(GPU_HOST) == [], again.output
