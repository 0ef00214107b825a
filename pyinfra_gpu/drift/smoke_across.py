"""Have the hosts of a group trained one step together as they are now? Judged by the stamp."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyinfra_gpu.drift.finding import Effect, Finding, Id, Stage, stop
from pyinfra_gpu.drift.fingerprint import fingerprint
from pyinfra_gpu.drift.rules import Rules
from pyinfra_gpu.facts.verdict import AcrossStamp, Stamp
from pyinfra_gpu.host_names import brief
from pyinfra_gpu.on_host.smoke.document import Mode
from pyinfra_gpu.stacks.bundle import smoke_digest

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import AcrossSpec, HostSpec

STAGE = Stage.SMOKE

RANKS = 2
"""A host's, at most: its own test has tried all its GPUs."""


def summary(spec: HostSpec, record: Record) -> str:
    """Say with whom the step was trained, where that still holds."""
    del record
    across = declared(spec)
    return f"with {brief(others(spec, across))}: passed earlier" if across else ""


def _step(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what is not proven of the hosts together."""
    across = declared(spec)
    if across is None:
        return
    if across.impossible:
        yield stop(
            Id.SMOKE_ACROSS_IMPOSSIBLE,
            f"smoke_across_hosts = {across.hosts!r}, and {across.impossible}",
            "a group of hosts that can train one step together",
            "correct `smoke_across_hosts`",
        )
    elif why := stale(spec, record):
        yield unproven(spec, across, why, "repair")
    elif spec.smoke.run == "always":
        yield unproven(spec, across, 'smoke = "always"', "note")


def declared(spec: HostSpec) -> AcrossSpec | None:
    """Return what is declared of the step, None where none is to be made."""
    return None if spec.smoke.run == "skip" else spec.smoke.across


def others(spec: HostSpec, across: AcrossSpec) -> list[str]:
    """Return the other hosts of the step."""
    return [name for name in across.members if name != spec.host]


def unproven(spec: HostSpec, across: AcrossSpec, why: str, effect: Effect) -> Finding:
    """Return the finding that the step is owed.

    + why: in a few words
    + effect: "report" where this run leaves other hosts of the group out
    """
    return Finding(
        id=Id.SMOKE_UNPROVEN_ACROSS_HOSTS,
        found=f"with {brief(others(spec, across))}: {why}",
        expected="a step that all hosts of the group trained together as they are now",
        effect=effect,
        action=f"run one step across {len(across.members)} hosts",
        repeats=effect == "note",
    )


def stale(spec: HostSpec, record: Record) -> str | None:
    """Return why what the stamp says of the step does not count, None if it does."""
    across, stamped = spec.smoke.across, stamp(record)
    members = across.members if across else ()
    if stamped is None:
        return "never passed together"
    if set(stamped.hosts) != set(members):
        return f"it passed with {brief(set(stamped.hosts) - {spec.host})}"
    if stamped.mode != mode(spec):
        return f"it passed as {stamped.mode}"
    now = fingerprint(spec, record, smoke_digest())
    return None if stamped.hosts[spec.host] == now else "this host changed since"


def stamp(record: Record) -> AcrossStamp | None:
    """Return what the host's stamp says of the step, None where it says nothing."""
    whole = record.smoke.stamp
    return whole.across if isinstance(whole, Stamp) else None


def mode(spec: HostSpec) -> Mode:
    """Return the mode of the step: simulated GPUs, and none, are tested on the CPU."""
    return "rehearsal-cpu" if spec.smoke.mode == "rehearsal-cpu" else "gpu"


judge = Rules(_step)
