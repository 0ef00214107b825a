"""Repositories that would break a host: refused before dpkg starts, or of no effect."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running import GPU_HOST, ON_HOST, Deployer, OnlyDriver, Run, usual_offer

from pyinfra_gpu.packages.files import PREFERENCES
from pyinfra_gpu_rehearsal import Lab, LabHost
from pyinfra_gpu_rehearsal.nvidia.archive import DKMS
from pyinfra_gpu_rehearsal.nvidia.kernels import HELPER
from tests.night import by_night

GUARD = Path(__file__).parents[2] / "pyinfra_gpu/on_host/packages/apt/guard.sh"
OLDER = "older-driver"  # a snapshot
pytestmark = pytest.mark.rehearsal

# Kind -> words of the refusal, one of which it must have.
REFUSALS = {
    "transitional": ("branch",),
    "vanished": ("does not have",),
    "hash-mismatch": ("not the one",),
    "expired-key": ("has expired",),
    "replaced-key": ("a key that this host does not trust",),
    "removes-desktop": ("rehearsal-desktop",),
    "pulls-kernel": ("linux-image",),
    "down": ("not reached or refused",),
}


@pytest.fixture(scope="module")
def host(gpu_lab: Lab, gpu_deployer: Deployer, gpu_converged: Callable[[], LabHost]) -> LabHost:
    """A host with the older driver and everything else; what is declared asks for a newer one."""
    found = gpu_converged()
    run = moves(gpu_deployer, "580.82.07")
    assert run.code == 0, run.output
    assert found.run("cat /sys/module/nvidia/version").stdout.strip() == "580.82.07"
    found.run("apt-get update -qq && apt-get install -y -qq rehearsal-desktop >/dev/null")
    return gpu_lab.snapshot(GPU_HOST, OLDER)


@pytest.fixture
def repository(gpu_lab: Lab) -> Iterator[Lab]:
    yield gpu_lab
    gpu_lab.nvidia.restore()


def installed(host: LabHost) -> str:
    return host.run("dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\\n'").stdout


def moves(deployer: Deployer, version: str) -> Run:
    return deployer.deploy("--data", f"driver_version={version}", limit=GPU_HOST)


@pytest.mark.parametrize("kind", by_night(REFUSALS, ("replaced-key", "removes-desktop")))
def test_a_bad_repository_is_refused_before_dpkg_starts(
    kind: str, host: LabHost, repository: Lab, gpu_deployer: Deployer
) -> None:
    host.run("apt-get clean")  # what was fetched before would hide a file that is gone
    before, log = installed(host), host.run("wc -l < /var/log/dpkg.log").stdout
    repository.nvidia.go_bad(kind)
    run = moves(gpu_deployer, "580.95.05")
    assert run.code == 1, run.output
    problem = " ".join(run.problems(GPU_HOST))
    assert any(words in problem for words in REFUSALS[kind]), problem
    assert installed(host) == before
    assert host.run("wc -l < /var/log/dpkg.log").stdout == log
    assert host.run("cat /sys/module/nvidia/version").stdout.strip() == "580.82.07"


@pytest.mark.parametrize("kind", by_night(("mixed-origin", "newer-leaf"), ("mixed-origin",)))
def test_a_repository_with_tempting_packages_does_not_tempt(
    kind: str, host: LabHost, repository: Lab, gpu_deployer: Deployer
) -> None:
    """Our pins name the origin and the version of every package of the driver."""
    repository.nvidia.go_bad(kind)
    run = moves(gpu_deployer, "580.95.05")
    assert run.code == 0, run.output
    rows = [row.split() for row in installed(host).splitlines()]
    driver = {row[1]: row[2] for row in rows if row[1].startswith(("nvidia-", "libcuda"))}
    odd = {
        name: version for name, version in driver.items() if not version.startswith("580.95.05-1")
    }
    assert not odd
    repository.nvidia.restore()
    repository.restore(GPU_HOST, OLDER)


def test_nvidias_dkms_with_its_epoch_is_left_alone(host: LabHost) -> None:
    """On Ubuntu 22.04 it does not depend on the compiler that the kernel is built with."""
    plain = "apt-cache -o Dir::Etc::PreferencesParts=/none policy dkms"
    assert f"Candidate: {DKMS}" in host.run(plain).stdout
    assert "Inst dkms" not in host.run("apt-get -s dist-upgrade").stdout
    assert ":" not in host.run("dpkg-query -W -f '${Version}' dkms").stdout


def test_a_package_that_somebody_holds_is_not_moved(
    host: LabHost, repository: Lab, gpu_deployer: Deployer
) -> None:
    """Not one of the driver's, which are ours to hold and to move."""
    host.run("apt-mark hold rehearsal-desktop")
    before = installed(host)
    repository.nvidia.go_bad("removes-desktop")
    try:
        run = moves(gpu_deployer, "580.95.05")
        assert run.code == 1, run.output
        assert "rehearsal-desktop" in " ".join(run.problems(GPU_HOST))
        assert installed(host) == before
    finally:
        host.run("apt-mark unhold rehearsal-desktop")


@pytest.mark.parametrize(("allowed", "code"), [("dctrl-tools *", 100), ("rehearsal-desktop -", 0)])
def test_apt_itself_obeys_the_guard(allowed: str, code: int, host: LabHost) -> None:
    """What was not simulated stops apt before dpkg starts; what was, passes."""
    log = host.run("wc -l < /var/log/dpkg.log").stdout
    host.put(GUARD, "/root/guard")
    host.put(ON_HOST / "guarded_apt.conf", "/root/apt.conf")
    host.run(f"chmod 0700 /root/guard; echo '{allowed}' >/root/allowed")
    remove = "APT_CONFIG=/root/apt.conf apt-get remove -y rehearsal-desktop 2>&1"
    done = host.run(remove, check=False)
    assert done.returncode == code, done.stdout
    stopped = "would do what it did not simulate: rehearsal-desktop -" in done.stdout
    assert stopped == (code != 0)
    assert (host.run("wc -l < /var/log/dpkg.log").stdout == log) == stopped


def test_with_a_sound_repository_the_same_run_moves_the_driver(
    host: LabHost, repository: Lab, gpu_deployer: Deployer
) -> None:
    wanted = ("-y", "--data", "driver_version=580.95.05")
    run = gpu_deployer.run(*wanted, limit=GPU_HOST)
    assert run.code == 0, run.output
    assert host.run("cat /sys/module/nvidia/version").stdout.strip() == "580.95.05"
    assert gpu_deployer.run(*wanted, limit=GPU_HOST).changed(GPU_HOST) == []


def test_a_bare_host_gets_nvidias_driver_beside_an_archive_that_has_one_too(
    gpu_lab: Lab, gpu_deployer: Deployer
) -> None:
    """Also after Debian's own driver, whose helper NVIDIA's conflicts with: it is said, not taken
    away. The archive's driver is one version ahead, and another revision of the newest."""
    usual_offer(gpu_lab)
    host = gpu_lab.fresh(GPU_HOST)
    host.run(f"apt-get update -qq && apt-get install -y -qq {HELPER} >/dev/null")
    gpu_lab.nvidia.go_bad("mixed-origin")
    try:
        deployer = OnlyDriver(gpu_lab, gpu_deployer.folder)
        before = installed(host)
        run = deployer.deploy(limit=GPU_HOST)
        assert run.code == 1, run.output
        remedy = re.search("`sudo (apt-get purge [^`]*)`", " ".join(run.problems(GPU_HOST)))
        assert remedy, run.output
        assert installed(host) == before
        assert host.run(f"test -e {PREFERENCES}", check=False).returncode
        host.run(f"{remedy[1]} -y")
        deployer.converge(limit=GPU_HOST)
    finally:
        gpu_lab.nvidia.restore()
    there = dict(row.split()[-2:] for row in installed(host).splitlines())
    assert {there["libcuda1"], there["nvidia-kernel-open-dkms"]} == {"580.95.05-1"}
    assert ":" not in there["dkms"]
