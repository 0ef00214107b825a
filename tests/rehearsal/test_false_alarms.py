"""A healthy GPU host stays quiet: no alarm, one channel, no needless reboot."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from running import GPU_HOST, PATIENCE_S, Deployer, busy_gpu, hold_apt

from pyinfra_gpu_rehearsal import Lab, LabHost

pytestmark = pytest.mark.rehearsal


@pytest.fixture(scope="module")
def host(gpu_proven: Callable[[], LabHost]) -> LabHost:
    """The GPU host, as declared and with a smoke test that passed."""
    return gpu_proven()


def quiet(deployer: Deployer) -> None:
    checked = deployer.check(limit=GPU_HOST)
    assert (checked.code, checked.deviations(GPU_HOST)) == (0, {}), checked.answer


def test_a_healthy_host_is_found_so_through_one_channel_a_command(
    host: LabHost, gpu_lab: Lab, gpu_deployer: Deployer
) -> None:
    before = host.ssh_sessions()
    quiet(gpu_deployer.cold())
    assert host.ssh_sessions() - before == 1
    run = Deployer(gpu_lab, gpu_deployer.folder).converge(limit=GPU_HOST)
    assert run.changed(GPU_HOST) == []
    assert host.ssh_sessions() - before == 2


def test_an_unrelated_upgrade_is_no_drift(host: LabHost, gpu_deployer: Deployer) -> None:
    install = "DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-dev >/dev/null"
    host.run(f"apt-get -qq update && {install}", timeout=PATIENCE_S)
    host.run("DEBIAN_FRONTEND=noninteractive apt-get upgrade -y -qq >/dev/null", timeout=PATIENCE_S)
    quiet(gpu_deployer)


def test_somebody_at_work_with_apt_is_no_drift(host: LabHost, gpu_deployer: Deployer) -> None:
    hold_apt(host, unit="apt-at-work")
    try:
        quiet(gpu_deployer)
    finally:
        host.run("systemctl stop apt-at-work")


def test_jobs_on_the_gpus_are_no_drift(host: LabHost, gpu_deployer: Deployer) -> None:
    with busy_gpu(host):
        quiet(gpu_deployer)
        assert gpu_deployer.converge(limit=GPU_HOST).changed(GPU_HOST) == []


def test_after_a_reboot_only_the_proof_is_owed(host: LabHost, gpu_deployer: Deployer) -> None:
    host.reboot()
    checked = gpu_deployer.check(limit=GPU_HOST)
    assert checked.code == 0, checked.answer
    assert set(checked.deviations(GPU_HOST)) <= {"smoke.proof-before-boot"}
