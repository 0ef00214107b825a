"""Repositories that would break a host: refused before dpkg starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from drifts import R580
from running import GPU_HOST, Deployer, usual_offer

from pyinfra_gpu.on_host import program, text
from pyinfra_gpu_rehearsal import Lab, LabHost
from tests.night import by_night

pytestmark = pytest.mark.rehearsal

# Kind -> words of the refusal.
REFUSALS = {
    "transitional": "branch",
    "vanished": "does not have",
    "hash-mismatch": "not the one",
    "expired-key": "has expired",
    "replaced-key": "a key that this host does not trust",
    "removes-desktop": "rehearsal-desktop",
    "pulls-kernel": "linux-image",
}


@pytest.fixture(scope="module")
def host(gpu_lab: Lab, gpu_converged: Callable[[], LabHost]) -> Iterator[LabHost]:
    """A host that is as declared, while the repository has a newer driver, and goes bad."""
    found = gpu_converged()
    found.run("apt-get update -qq && apt-get install -y -qq rehearsal-desktop >/dev/null")
    gpu_lab.nvidia.offer(*R580)
    yield found
    usual_offer(gpu_lab)


def installed(host: LabHost) -> str:
    """Return what is installed, and how much dpkg has done."""
    asked = "dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\\n'"
    return host.run(f"{asked}; wc -l < /var/log/dpkg.log; cat /sys/module/nvidia/version").stdout


@pytest.mark.parametrize("kind", by_night(REFUSALS, ("replaced-key", "removes-desktop")))
def test_a_bad_repository_is_refused_before_dpkg_starts(
    kind: str, host: LabHost, gpu_lab: Lab, gpu_deployer: Deployer
) -> None:
    host.run("apt-get clean")  # what was fetched before would hide a file that is gone
    before = installed(host)
    gpu_lab.nvidia.offer(*R580, bad=kind)
    run = gpu_deployer.deploy("--data", f"driver_version={R580[-1]}", limit=GPU_HOST)
    gpu_lab.nvidia.offer(*R580)
    assert run.code == 1, run.output
    assert REFUSALS[kind] in " ".join(run.problems(GPU_HOST))
    assert installed(host) == before


@pytest.mark.parametrize(("allowed", "code"), [("dctrl-tools *", 100), ("rehearsal-desktop -", 0)])
def test_apt_itself_obeys_the_guard(allowed: str, code: int, host: LabHost) -> None:
    """What was not simulated stops apt before dpkg starts; what was, passes."""
    before = installed(host)
    words = ("apt-get", "remove", "-y", "rehearsal-desktop")
    guarded = (text("packages/apt/guard.sh"), allowed, "", *words)
    remove = program("packages/apt/transaction.sh", *guarded)
    done = host.run(f"{remove} 2>&1", check=False)
    assert done.returncode == code, done.stdout
    stopped = "would do what it did not simulate: rehearsal-desktop -" in done.stdout
    assert stopped == (code != 0)
    assert (installed(host) == before) == stopped
