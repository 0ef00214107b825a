"""`remove` on a GPU host: ours goes, driver and training stay, a deploy brings the rest back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from running import GPU_HOST, Deployer

from pyinfra_gpu_rehearsal import LabHost

pytestmark = [pytest.mark.rehearsal, pytest.mark.night]

OURS = "find /etc /usr/share/keyrings /var/lib /var/cache /opt -xdev -name '*pyinfra-gpu*'"
PREFIX = "/opt/pyinfra-gpu"
DRIVER = "cat /sys/module/nvidia/version; apt-mark showhold; dpkg-query -W '*nvidia*' '*cuda*'"


def test_all_of_ours_goes_and_a_deploy_brings_it_back_with_the_driver_untouched(
    gpu_converged: Callable[[], LabHost], gpu_deployer: Deployer
) -> None:
    host = gpu_converged()
    host.run(f"echo mine >{PREFIX}/training/training/notes.txt")
    boot, driver = host.boot_id(), host.run(DRIVER).stdout
    done = gpu_deployer.verb("remove", "--yes", "--limit", GPU_HOST)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{GPU_HOST} (rehearsal)  removed" in done.stdout
    assert host.run(OURS).stdout.splitlines() == [PREFIX]
    assert host.run(f"ls -A {PREFIX}").stdout.split() == ["training"]
    again = gpu_deployer.verb("remove", "--yes", "--limit", GPU_HOST)
    assert (again.returncode, "nothing to remove" in again.stdout) == (0, True)
    run = gpu_deployer.converge(limit=GPU_HOST)
    assert run.code == 0, run.output
    left = gpu_deployer.check(limit=GPU_HOST).deviations(GPU_HOST).keys()
    assert left <= {"smoke.unproven", "training.local-changes"}  # notes.txt
    assert (host.boot_id(), host.run(DRIVER).stdout) == (boot, driver)
    assert host.run(f"cat {PREFIX}/training/training/notes.txt").stdout == "mine\n"
