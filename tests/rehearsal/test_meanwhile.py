"""Torch is fetched while the driver is installed; whatever ends that, nothing of it is left."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from running import GPU_HOST, Deployer, until, usual_offer

from pyinfra_gpu_rehearsal import Lab, LabHost

pytestmark = pytest.mark.rehearsal

CACHE = "/opt/pyinfra-gpu/cache"
UV = f"[u]v pip install .*--target {CACHE}/pyinfra-gpu-meanwhile"
FETCHED = re.compile(r"torch \S+ was fetched in (\d+) s, (\d+) s of them beside other work")


class OnlyTorch(Deployer):
    """Runs what the driver and torch need, and nothing after it."""

    file = "tests/rehearsal/only_torch.py"


@pytest.fixture
def deployer(gpu_lab: Lab, gpu_deployer: Deployer) -> OnlyTorch:
    usual_offer(gpu_lab)
    return OnlyTorch(gpu_lab, gpu_deployer.folder, gpu_deployer.arguments)


@pytest.fixture
def bare(gpu_lab: Lab) -> LabHost:
    return gpu_lab.fresh(GPU_HOST)


def at_work(host: LabHost) -> str:
    """The processes of what is fetched meanwhile."""
    return host.run("pgrep -af 'pyinfra-gpu[-]meanwhile' || true").stdout


def left(host: LabHost) -> str:
    """What there is of it: its processes, and what it wrote but the installer's cache."""
    return at_work(host) + host.run(f"find {CACHE} -maxdepth 1 -name 'pyinfra-gpu-*'").stdout


def nothing_is_left(host: LabHost) -> None:
    with suppress(AssertionError):  # what is left says more
        until(lambda: not left(host), 20, every=0.5)
    assert left(host) == ""


def test_torch_comes_while_the_driver_is_installed(deployer: OnlyTorch, bare: LabHost) -> None:
    plan = deployer.dry(limit=GPU_HOST)
    said = " ".join(plan.output.split())
    assert "is fetched while the driver is installed" in said
    assert at_work(bare) == ""

    run = deployer.converge(limit=GPU_HOST)
    found = FETCHED.search(run.output)
    assert found, run.output
    assert int(found[2]) > 0
    nothing_is_left(bare)
    again = deployer.converge(limit=GPU_HOST)
    assert again.changed(GPU_HOST) == []
    assert "meanwhile" not in again.output


def test_what_ends_early_leaves_nothing_and_the_stage_fetches_itself(
    deployer: OnlyTorch, bare: LabHost
) -> None:
    cut_off = deployer.start(limit=GPU_HOST)
    until(lambda: bare.run(f"pkill -STOP -f '{UV}'", check=False).returncode == 0, 300)
    cut_off.kill()
    cut_off.communicate()
    nothing_is_left(bare)

    again = deployer.start(limit=GPU_HOST)
    until(lambda: bare.run(f"pkill -KILL -f '{UV}'", check=False).returncode == 0, 300)
    output, _ = again.communicate()
    assert again.returncode == 0, output
    assert "was not fetched beside other work" in output
    assert not FETCHED.search(output)
    nothing_is_left(bare)
    assert deployer.converge(limit=GPU_HOST).changed(GPU_HOST) == []
