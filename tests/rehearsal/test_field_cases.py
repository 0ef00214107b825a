"""What users and power cuts do to a host is seen, and repaired or left with a sentence.

`make test` tries three of `field_cases`, `make night` all of them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest
from drifts import PRELUDE, R580
from field_cases import CASES, NOTHING, OWNER, Case
from running import GPU_HOST, PATIENCE_S, Deployer, Kept

from pyinfra_gpu_rehearsal import Lab, LabHost
from tests.night import by_night

pytestmark = pytest.mark.rehearsal

ALWAYS = ("DKMS was cut off while it built, as the package was set up",)


@pytest.fixture(scope="module")
def kept(gpu_converged: Callable[[], LabHost], gpu_deployer: Deployer) -> Kept:
    """Return a host as declared; each test leaves it so."""

    def healthy() -> LabHost:
        host = gpu_converged()
        assert found(gpu_deployer) == {}
        return host

    return Kept(healthy)


def run(host: LabHost, command: str) -> None:
    host.run(PRELUDE + OWNER + textwrap.dedent(command), timeout=PATIENCE_S)


def found(deployer: Deployer) -> dict[str, str]:
    """Return what `check` finds, the smoke test apart: id -> effect."""
    deviations = deployer.check(limit=GPU_HOST).deviations(GPU_HOST)
    return {id_: each["effect"] for id_, each in deviations.items() if id_ != "smoke.unproven"}


@pytest.mark.parametrize("name", by_night(CASES, ALWAYS))
def test_what_users_and_power_cuts_do_is_seen_and_repaired(
    name: str, kept: Kept, gpu_deployer: Deployer, gpu_lab: Lab
) -> None:
    case: Case = CASES[name]
    with kept.lent() as host:
        gpu_lab.nvidia.publish(*R580)
        run(host, case.inject)
        assert set(found(gpu_deployer)) == set(case.ids)
        deployed = gpu_deployer.deploy(limit=GPU_HOST)
        assert deployed.code == (1 if case.refused else 0), deployed.output
        assert bool(deployed.problems(GPU_HOST)) == case.refused, deployed.output
        if case.repaired:
            assert found(gpu_deployer) == {}, deployed.output
            run(host, case.holds)
        run(host, case.undo)
        again = gpu_deployer.converge(limit=GPU_HOST)
        if case.repaired and case.undo == NOTHING:
            assert again.changed(GPU_HOST) == [], again.output
        assert found(gpu_deployer) == {}
