"""Each way in which a GPU host drifts, or is worn, is seen, named, and repaired or reported.

`make test` tries one of each mechanism, together on one host; `make night` each by itself.
"""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable

import pytest
from drifts import DRIFTS, PRELUDE, R580, Drift
from field_cases import CASES, NOTHING, OWNER
from running import GPU_HOST, PATIENCE_S, Deployer, Kept, Run

from pyinfra_gpu_rehearsal import Lab, LabHost

pytestmark = pytest.mark.rehearsal


@pytest.fixture(scope="module")
def kept(gpu_converged: Callable[[], LabHost], gpu_deployer: Deployer) -> Kept:
    """Return the host that has the older driver and is as declared; each test leaves it so."""

    def healthy() -> LabHost:
        host = gpu_converged()
        assert gpu_deployer.check(limit=GPU_HOST).code in (0, 2)
        return host

    return Kept(healthy)


def inject(host: LabHost, command: str) -> None:
    host.run(PRELUDE + OWNER + textwrap.dedent(command), timeout=PATIENCE_S)


def see(deployer: Deployer, drifts: list[Drift]) -> None:
    """Both read-only ways must name every drift, and the exit code must say how bad it is."""
    checked = deployer.check(limit=GPU_HOST)
    found = checked.deviations(GPU_HOST)
    for drift in drifts:
        assert drift.id in found, (sorted(found), checked.answer)
        assert found[drift.id]["effect"] == drift.effect, found[drift.id]
        assert found[drift.id]["found"], found[drift.id]
        assert found[drift.id]["expected"], found[drift.id]
    effects = {each["effect"] for id_, each in found.items() if id_ != "smoke.unproven"}
    assert checked.code == (3 if effects == {"restart"} else 2)
    dry = deployer.dry(limit=GPU_HOST)
    stages = dry.report["hosts"][GPU_HOST]["stages"]
    seen = {each["id"] for stage in stages for each in stage["deviations"]}
    for drift in drifts:
        stage = drift.id.partition(".")[0]
        structured = drift.id in seen
        assert structured or any(each["stage"] == stage and each["changed"] for each in stages)


def repair(deployer: Deployer, host: LabHost, drifts: list[Drift]) -> Run:
    """The next run repairs what can be repaired; a person undoes the rest."""
    boot = host.boot_id()
    run = deployer.deploy(limit=GPU_HOST)
    if any(drift.refused for drift in drifts):
        assert run.code == 1, run.output
        assert run.problems(GPU_HOST), run.output
    elif not any(drift.effect == "report" for drift in drifts):
        assert run.code == 0, run.output
    for drift in drifts:
        if drift.undo:
            inject(host, drift.undo)
    if any(drift.refused for drift in drifts):
        run = deployer.converge(limit=GPU_HOST)
    assert run.code == 0, run.output
    if not any(drift.reboots for drift in drifts):
        assert host.boot_id() == boot, "rebooted where a reload was enough"
    return run


def nothing_left(deployer: Deployer) -> None:
    again = deployer.converge(limit=GPU_HOST)
    assert again.changed(GPU_HOST) == [], again.output
    stages = again.report["hosts"][GPU_HOST]["stages"]
    found = {each["id"] for stage in stages for each in stage["deviations"]}
    # The deploys of this file skip the smoke test.
    assert found <= {"smoke.skipped"}, found


TOGETHER = (
    "the module is not built for the newest kernel",
    "a driver package is half installed",
    "a hold is removed",
    "the source list points at another release",
    "libcuda.so is missing",
    "the linker's cache is stale",
)
"""In this order: the first two need the source list."""


def test_drifts_of_each_mechanism_are_seen_named_and_repaired_in_one_run(
    kept: Kept, gpu_deployer: Deployer, gpu_lab: Lab
) -> None:
    drifts = [DRIFTS[name] for name in TOGETHER]
    with kept.lent() as host:
        gpu_lab.nvidia.offer(*R580, newer_kernel=True)
        for drift in drifts:
            inject(host, drift.inject)
        see(gpu_deployer, drifts)
        repair(gpu_deployer, host, drifts)
        nothing_left(gpu_deployer)


@pytest.mark.night
@pytest.mark.parametrize("name", DRIFTS)
def test_a_drift_is_seen_named_and_repaired(
    name: str, kept: Kept, gpu_deployer: Deployer, gpu_lab: Lab
) -> None:
    drift = DRIFTS[name]
    with kept.lent() as host:
        gpu_lab.nvidia.offer(*(drift.publish or R580), newer_kernel=drift.newer_kernel)
        inject(host, drift.inject)
        if drift.reboots:
            host.reboot()
        see(gpu_deployer, [drift])
        repair(gpu_deployer, host, [drift])
        nothing_left(gpu_deployer)


# Chosen at random, and the same on every machine until the table grows. Left out is what by its
# nature hides another drift of the same part.
ALONE = {
    "a companion package went ahead",
    "the branch moved",
    "the driver was upgraded under the loaded module",
    "nouveau is back",
    "the module is not built for the newest kernel",
}
_MIXABLE = sorted(set(DRIFTS) - ALONE)
_RANDOM = random.Random(len(DRIFTS))
PAIRS = [(one, other) for one, other in (_RANDOM.sample(_MIXABLE, 2) for _ in range(8))]


@pytest.mark.night
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_drifts_at_once_are_both_seen_and_repaired(
    one: str, other: str, kept: Kept, gpu_deployer: Deployer, gpu_lab: Lab
) -> None:
    drifts = [DRIFTS[name] for name in (one, other)]
    with kept.lent() as host:
        gpu_lab.nvidia.offer(*R580)
        for drift in drifts:
            inject(host, drift.inject)
        if len({drift.id for drift in drifts}) == len(drifts):
            checked = gpu_deployer.check(limit=GPU_HOST)
            found = set(checked.deviations(GPU_HOST))
            assert {drift.id for drift in drifts} <= found, checked.answer
        repair(gpu_deployer, host, drifts)
        nothing_left(gpu_deployer)


def found(deployer: Deployer) -> set[str]:
    """Return the ids of what `check` finds, the smoke test apart."""
    found = deployer.check(limit=GPU_HOST).deviations(GPU_HOST)
    return {id_.partition(" ")[0] for id_ in found} - {"smoke.unproven"}


@pytest.fixture(scope="module")
def declared(gpu_converged: Callable[[], LabHost]) -> Kept:
    """Return the host as it was first deployed; each test leaves it as declared."""
    return Kept(gpu_converged)


@pytest.mark.night
@pytest.mark.parametrize("name", CASES)
def test_what_users_and_power_cuts_do_is_seen_and_repaired(
    name: str, declared: Kept, gpu_deployer: Deployer, gpu_lab: Lab
) -> None:
    case = CASES[name]
    with declared.lent() as host:
        gpu_lab.nvidia.offer(*R580)
        inject(host, case.inject)
        assert found(gpu_deployer) == set(case.ids)
        deployed = gpu_deployer.deploy(limit=GPU_HOST)
        assert deployed.code == (1 if case.refused else 0), deployed.output
        assert bool(deployed.problems(GPU_HOST)) == case.refused, deployed.output
        if case.repaired:
            assert found(gpu_deployer) == set(), deployed.output
            inject(host, case.holds)
        inject(host, case.undo)
        again = gpu_deployer.converge(limit=GPU_HOST)
        if case.repaired and case.undo == NOTHING:
            assert again.changed(GPU_HOST) == [], again.output
        assert found(gpu_deployer) == set()
