"""Ten repositories that would break a host are refused before dpkg starts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import pytest
from drifts import PRELUDE
from running import GPU_HOST, Deployer

from pyinfra_gpu.rehearsal import Lab, LabHost

pytestmark = pytest.mark.rehearsal

# Kind -> words of the refusal.
POISONS = {
    "transitional": ("branch",),
    "vanished": ("404",),
    "mixed-origin": ("origin",),
    "newer-leaf": ("version",),
    "hash-mismatch": ("hash", "Hash"),
    "expired-key": ("key", "expired"),
    "replaced-key": ("key",),
    "removes-desktop": ("rehearsal-desktop",),
    "pulls-kernel": ("linux-image",),
    "down": ("503", "404", "reach", "Failed to fetch"),
}


@pytest.fixture(scope="module")
def host(gpu_lab: Lab, gpu_deployer: Deployer) -> LabHost:
    """A host with the older driver and everything else; what is declared asks for a newer one."""
    gpu_lab.nvidia.restore()
    gpu_lab.nvidia.publish("580.82.07", "580.95.05")
    gpu_lab.fresh(GPU_HOST)
    found = gpu_lab.host(GPU_HOST)
    gpu_deployer.run("-y", "--data", "driver_version=580.82.07", limit=GPU_HOST)
    assert found.run("cat /sys/module/nvidia/version").stdout.strip() == "580.82.07"
    found.run("apt-get update -qq && apt-get install -y -qq rehearsal-desktop >/dev/null")
    return found


@pytest.fixture
def repository(gpu_lab: Lab) -> Iterator[Lab]:
    yield gpu_lab
    gpu_lab.nvidia.restore()


def installed(host: LabHost) -> str:
    return host.run("dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\\n'").stdout


@pytest.mark.parametrize("kind", POISONS)
def test_a_poisoned_repository_is_refused_before_dpkg_starts(
    kind: str, host: LabHost, repository: Lab, gpu_deployer: Deployer
) -> None:
    before, log = installed(host), host.run("wc -l < /var/log/dpkg.log").stdout
    repository.nvidia.poison(kind)
    run = gpu_deployer.deploy("--data", "driver_version=580.95.05", limit=GPU_HOST)
    assert run.code == 1, run.output
    problem = " ".join(run.problems(GPU_HOST))
    assert any(words in problem for words in POISONS[kind]), problem
    assert installed(host) == before
    assert host.run("wc -l < /var/log/dpkg.log").stdout == log
    assert host.run("cat /sys/module/nvidia/version").stdout.strip() == "580.82.07"


def test_a_package_held_by_somebody_is_not_moved(
    host: LabHost, repository: Lab, gpu_deployer: Deployer
) -> None:
    before = installed(host)
    host.run(PRELUDE + textwrap.dedent("quiet apt-mark hold dkms"))
    repository.nvidia.poison("removes-held")
    try:
        run = gpu_deployer.deploy("--data", "driver_version=580.95.05", limit=GPU_HOST)
        assert run.code == 1, run.output
        assert "dkms" in " ".join(run.problems(GPU_HOST))
    finally:
        host.run("apt-mark unhold dkms")
    assert installed(host) == before


def test_with_a_sound_repository_the_same_run_moves_the_driver(
    host: LabHost, repository: Lab, gpu_deployer: Deployer
) -> None:
    wanted = ("-y", "--data", "driver_version=580.95.05")
    run = gpu_deployer.run(*wanted, limit=GPU_HOST)
    assert run.code == 0, run.output
    assert host.run("cat /sys/module/nvidia/version").stdout.strip() == "580.95.05"
    assert gpu_deployer.run(*wanted, limit=GPU_HOST).changed(GPU_HOST) == []
