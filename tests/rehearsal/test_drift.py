"""Each way in which a GPU host drifts, or is worn, is seen, named, and repaired or reported.

`make test` tries one of each mechanism, together on one host; `make night` each by itself.
"""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable

import pytest
from drifts import DRIFTS, PRELUDE, R580, Drift
from field_cases import CASES
from running import GPU_HOST, PATIENCE_S, Deployer, Kept, Run

from pyinfra_gpu_rehearsal import Lab, LabHost

pytestmark = pytest.mark.rehearsal

KNOWN = DRIFTS | CASES


@pytest.fixture(scope="module")
def kept(gpu_converged: Callable[[], LabHost]) -> Kept:
    """Return the host that has the older driver and is as declared; each test leaves it so."""
    return Kept(gpu_converged)


def inject(host: LabHost, command: str) -> None:
    host.run(PRELUDE + textwrap.dedent(command), timeout=PATIENCE_S)


def found(deployer: Deployer) -> set[str]:
    """Return the ids of what `check` finds, the smoke test apart."""
    found = deployer.check(limit=GPU_HOST).deviations(GPU_HOST)
    return {id_.partition(" ")[0] for id_ in found} - {"smoke.unproven", "smoke.skipped"}


def see(deployer: Deployer, drifts: list[Drift]) -> None:
    """Both read-only ways must name every drift, and the exit code must say how bad it is."""
    if not any(drift.ids for drift in drifts):
        assert found(deployer) == set()
        return
    checked = deployer.check(limit=GPU_HOST)
    seen = checked.deviations(GPU_HOST)
    dry = deployer.dry(limit=GPU_HOST).report["hosts"][GPU_HOST]["stages"]
    planned = {each["id"] for stage in dry for each in stage["deviations"]}
    for id_, effect in ((id_, drift.effect) for drift in drifts for id_ in drift.ids):
        assert id_ in seen, (sorted(seen), checked.answer)
        assert not effect or seen[id_]["effect"] == effect, seen[id_]
        assert seen[id_]["found"], seen[id_]
        assert seen[id_]["expected"], seen[id_]
        changed = (each["stage"] for each in dry if each["changed"])
        assert id_ in planned or id_.partition(".")[0] in changed
    effects = {each["effect"] for id_, each in seen.items() if id_ != "smoke.unproven"}
    assert checked.code == (3 if effects == {"restart"} else 2)


def repair(deployer: Deployer, host: LabHost, drifts: list[Drift]) -> Run:
    """The next run repairs what can be repaired, a person undoes the rest; then all is well."""
    boot, refused = host.boot_id(), any(drift.refused for drift in drifts)
    run = deployer.deploy(limit=GPU_HOST)
    assert run.code == refused, run.output
    assert bool(run.problems(GPU_HOST)) == refused, run.output
    for drift in drifts:
        inject(host, drift.holds)
    for drift in drifts:
        inject(host, drift.undo)
    if any(drift.undo for drift in drifts):
        deployer.converge(limit=GPU_HOST)
    if not any(drift.reboots for drift in drifts):
        assert host.boot_id() == boot, "rebooted where a reload was enough"
    again = deployer.converge(limit=GPU_HOST)
    assert again.changed(GPU_HOST) == [], again.output
    assert found(deployer) == set()
    return run


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


@pytest.mark.night
@pytest.mark.parametrize("name", KNOWN)
def test_a_drift_is_seen_named_and_repaired(
    name: str, kept: Kept, gpu_deployer: Deployer, gpu_lab: Lab
) -> None:
    drift = KNOWN[name]
    with kept.lent() as host:
        gpu_lab.nvidia.offer(*(drift.publish or R580), newer_kernel=drift.newer_kernel)
        inject(host, drift.inject)
        if drift.reboots:
            host.reboot()
        see(gpu_deployer, [drift])
        repair(gpu_deployer, host, [drift])


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
        assert {id_ for drift in drifts for id_ in drift.ids} <= found(gpu_deployer)
        repair(gpu_deployer, host, drifts)
