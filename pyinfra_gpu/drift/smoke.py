"""Did the smoke test pass on what is there now? Judged by its stamp, never run here.

So is the step that the hosts of a group take together, of which the same stamp tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyinfra_gpu.drift.finding import Effect, Finding, Id, Stage, stop
from pyinfra_gpu.drift.fingerprint import differences, fingerprint
from pyinfra_gpu.drift.rules import Rules
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.verdict import AcrossStamp, Stamp, Verdict
from pyinfra_gpu.host_names import brief
from pyinfra_gpu.on_host.smoke.document import Mode
from pyinfra_gpu.stacks.bundle import smoke_digest

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = Stage.SMOKE
ACROSS_RANKS = 2
"""A host's in a step of several hosts, at most: its own test has tried all its GPUs."""

CHANGED = "since it passed, changed: "


def summary(spec: HostSpec, record: Record) -> str:
    """Say what stands for the proof, where it stands."""
    del record
    if spec.smoke.run == "skip":
        return "skipped by data"
    with_others = f"; with {others(spec)}: passed earlier" if members(spec) else ""
    return f"passed earlier, nothing changed since{with_others}"


def _proof(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what is not proven of this host itself; an unreadable stamp proves nothing."""
    if spec.smoke.run == "skip":
        yield Finding(
            id=Id.SMOKE_SKIPPED,
            found=f'smoke = "skip" is declared, so nothing is proven{_refused(spec)}',
            expected="a smoke test that passed",
            effect="note",
            action="no test",
        )
    elif spec.smoke.accept == "two-gpus" and spec.smoke.mode != "gpu":
        yield stop(
            Id.SMOKE_CANNOT_PROVE_TWO_GPUS,
            f"this host's test would be {spec.smoke.mode}, which proves nothing about two GPUs",
            "what smoke_accept = 'two-gpus' asks for",
            "declare two real GPUs, or smoke_accept = 'proof'",
        )
    elif (why := stale(spec, record)) or spec.smoke.run == "always":
        yield _unproven(spec, record, why)


def _refused(spec: HostSpec) -> str:
    """Say what a missing proof keeps people from, though it is no drift."""
    return "" if spec.training is None else "; `train start` refuses until it has passed"


def _unproven(spec: HostSpec, record: Record, why: str | None) -> Finding:
    """Say what is not proven. A reboot owes a test, and yet is not drift: nobody is to be called
    at night because a host was rebooted. Nor is it drift that data asks for another test.
    """
    names = changed(spec, record) if why else []
    rebooted = names == ["the boot"]
    effect: Effect = "note" if rebooted or why is None else "repair"
    return Finding(
        id=Id.SMOKE_PROOF_BEFORE_BOOT if rebooted else Id.SMOKE_UNPROVEN,
        found='smoke = "always"' if why is None else f"{why}{_refused(spec) if rebooted else ''}",
        expected="a smoke test that passed on what is there now",
        effect=effect,
        action=f"run the smoke test, {spec.smoke.ranks} ranks",
        repeats=effect == "note",
    )


def changed(spec: HostSpec, record: Record) -> list[str]:
    """Return the names of what changed since the test passed whose stamp the host has."""
    stamp = record.smoke.stamp
    if stamp is None or isinstance(stamp, Unknown) or not stamp.passed:
        return []
    return differences(str(stamp.fingerprint), fingerprint(spec, record, smoke_digest()))


def stale(spec: HostSpec, record: Record) -> str | None:
    """Return why the stamp on the host does not count, in a few words; None if it does."""
    stamp, verdict = record.smoke.stamp, record.smoke.verdict
    if stamp is None:
        failed = isinstance(verdict, Verdict) and verdict.status == "fail"
        return "the last test failed" if failed else "never passed here"
    if isinstance(stamp, Unknown):
        return "the smoke test's stamp cannot be read"
    if not stamp.passed:
        return "the last test did not pass"
    there = record.smoke.verdict_sha256
    if stamp.verdict and not isinstance(there, Unknown) and there != stamp.verdict:
        return f"the verdict of the test that passed was {'edited' if there else 'removed'}"
    if names := changed(spec, record):
        return f"{CHANGED}{', '.join(names)}"
    if stamp.mode != spec.smoke.mode:
        return f"it passed as {stamp.mode}"
    touched = record.torch.touched
    if isinstance(touched, int) and touched:
        return f"{touched} files changed since the test passed and were not compared in time"
    return None


# -- with the other hosts of the group


def _across(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what is not proven of the hosts together."""
    if not members(spec):
        return
    if why := stale_across(spec, record):
        yield unproven_across(spec, why, "repair")
    elif spec.smoke.run == "always":
        yield unproven_across(spec, 'smoke = "always"', "note")


def members(spec: HostSpec) -> tuple[str, ...]:
    """Return the hosts that take one step together, this one among them; none if none is to be
    made.
    """
    across = spec.smoke.across
    return () if across is None or spec.smoke.run == "skip" else across.members


def others(spec: HostSpec) -> str:
    """Return the names of the other hosts of the step, in short."""
    return brief([name for name in members(spec) if name != spec.host])


def unproven_across(spec: HostSpec, why: str, effect: Effect) -> Finding:
    """Return the finding that the step has to be made.

    + why: in a few words
    + effect: "report" where this run leaves other hosts of the group out
    """
    return Finding(
        id=Id.SMOKE_UNPROVEN_ACROSS_HOSTS,
        found=f"with {others(spec)}: {why}",
        expected="a step that all hosts of the group trained together as they are now",
        effect=effect,
        action=f"run one step across {len(members(spec))} hosts",
        repeats=effect == "note",
    )


def stale_across(spec: HostSpec, record: Record) -> str | None:
    """Return why what the stamp says of the step does not count, None if it does."""
    stamped = across_stamp(record)
    if stamped is None:
        return "never passed together"
    if set(stamped.hosts) != set(members(spec)):
        return f"it passed with {brief(set(stamped.hosts) - {spec.host})}"
    if stamped.mode != across_mode(spec):
        return f"it passed as {stamped.mode}"
    now = fingerprint(spec, record, smoke_digest())
    return None if stamped.hosts[spec.host] == now else "this host changed since"


def across_stamp(record: Record) -> AcrossStamp | None:
    """Return what the host's stamp says of the step, None where it says nothing."""
    whole = record.smoke.stamp
    return whole.across if isinstance(whole, Stamp) else None


def across_mode(spec: HostSpec) -> Mode:
    """Return the mode of the step: simulated GPUs, and none, are tested on the CPU."""
    return "rehearsal-cpu" if spec.smoke.mode == "rehearsal-cpu" else "gpu"


judge = Rules(_proof, _across)
