"""Did the smoke test pass on what is there now? Judged by root's stamp, never run here.

The same stamp tells with which hosts one step was trained since.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.verdict import Stamp, Verdict
from pyinfra_gpu.host_names import brief
from pyinfra_gpu.stacks.bundle import smoke_digest
from pyinfra_gpu.stages.finding import Effect, Finding, Id, Stage, note, stop
from pyinfra_gpu.stages.fingerprint import differences, fingerprint
from pyinfra_gpu.stages.rules import Rules

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = Stage.SMOKE
ACROSS_RANKS = 2
"""A host's in a step of several hosts, at most: its own test has tried all its GPUs."""
_ALWAYS, _BOOTED = 'smoke = "always"', "the host has booted since the smoke test passed"


def summary(spec: HostSpec, record: Record) -> str:
    """Say what stands for the proof, where it stands."""
    del record
    if spec.smoke.run == "skip":
        return "skipped by data"
    with_others = f"; with {others(spec)}: passed earlier" if members(spec) else ""
    return f"passed earlier{with_others}"


def _proof(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what is not proven of this host itself."""
    if spec.smoke.run == "skip":
        found = f'smoke = "skip" is declared, so nothing is proven{_refused(spec)}'
        yield note(Id.SMOKE_SKIPPED, found, "a smoke test that passed", "no test")
    elif spec.smoke.accept == "two-gpus" and spec.smoke.mode != "gpu":
        yield stop(
            Id.SMOKE_CANNOT_PROVE_TWO_GPUS,
            f"this host's test would be {spec.smoke.mode}, which proves nothing about two GPUs",
            "what smoke_accept = 'two-gpus' asks for",
            "declare two real GPUs, or smoke_accept = 'proof'",
        )
    elif why := stale(spec, record) or (_ALWAYS if spec.smoke.run == "always" else None):
        yield _owed(
            Id.SMOKE_PROOF_BEFORE_BOOT if why == _BOOTED else Id.SMOKE_UNPROVEN,
            f"{why}{_refused(spec)}" if why == _BOOTED else why,
            "a smoke test that passed on what is there now",
            f"run the smoke test, {spec.smoke.ranks} ranks",
            _effect(why),
        )


def _across(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what is not proven of the hosts together."""
    if why := why_across(spec, record):
        yield unproven_across(spec, why)


judge = Rules(_proof, _across)


def _effect(why: str) -> Effect:
    """Return the effect of a test that is to be run. The next run runs it in any case, but
    neither a reboot nor data that asks for a test is drift, for which somebody is called at night.
    """
    return "note" if why in (_BOOTED, _ALWAYS) else "repair"


def _owed(id_: Id, found: str, expected: str, action: str, effect: Effect) -> Finding:
    return Finding(id_, found, expected, action, effect=effect, repeats=effect == "note")


def _refused(spec: HostSpec) -> str:
    """Say what a missing proof keeps people from, though it is no drift."""
    return "" if spec.training is None else "; `train start` refuses until one passes"


def stale(spec: HostSpec, record: Record) -> str | None:
    """Return why the stamp on the host does not count, in a few words; None if it does."""
    stamp, verdict = record.smoke.stamp, record.smoke.verdict
    if stamp is None:
        tested = isinstance(verdict, Verdict)
        return "the last test did not pass" if tested else "never passed here"
    if isinstance(stamp, Unknown):
        return "the smoke test's stamp cannot be read"
    there = record.smoke.verdict_sha256
    if stamp.verdict and not isinstance(there, Unknown) and there != stamp.verdict:
        return f"the verdict of the test that passed was {'edited' if there else 'removed'}"
    names = differences(stamp.fingerprint, fingerprint(spec, record, smoke_digest()))
    if names:
        return _BOOTED if names == ["the boot"] else f"since it passed, changed: {', '.join(names)}"
    if stamp.mode != spec.smoke.mode:
        return f"it passed as {stamp.mode}"
    touched = record.torch.touched
    if isinstance(touched, int) and touched:
        return f"{touched} files changed since the test passed and were not compared in time"
    return None


# -- with the other hosts of the group


def members(spec: HostSpec) -> tuple[str, ...]:
    """Return the hosts that take one step together, this one among them; none if none is to be
    made.
    """
    across = spec.smoke.across
    return () if across is None or spec.smoke.run == "skip" else across.members


def others(spec: HostSpec) -> str:
    """Return the names of the other hosts of the step, in short."""
    return brief([name for name in members(spec) if name != spec.host])


def why_across(spec: HostSpec, record: Record) -> str | None:
    """Return why this host and the others have to train one step together, None if they need not.

    A test of the host itself leaves a new stamp, which says nothing of others.
    """
    stamp = record.smoke.stamp
    if not members(spec):
        return None
    if not isinstance(stamp, Stamp) or not stamp.across:
        return "never passed together"
    if {*stamp.across} != {*members(spec)}:
        return f"it passed with {brief({*stamp.across} - {spec.host})}"
    return stale(spec, record) or (_ALWAYS if spec.smoke.run == "always" else None)


def unproven_across(spec: HostSpec, why: str, effect: Effect | None = None) -> Finding:
    """Return the finding that the step has to be made.

    + effect: "report" where this run leaves other hosts of the group out
    """
    return _owed(
        Id.SMOKE_UNPROVEN_ACROSS_HOSTS,
        f"with {others(spec)}: {why}",
        "a step that all hosts of the group trained together as they are now",
        f"run one step across {len(members(spec))} hosts",
        effect or _effect(why),
    )
