"""S4: which processes the ranks are; and all checks of ranks, in their order."""

from __future__ import annotations

from . import bandwidth, collectives, precision, step, store, transport
from .check import Check, Facts, Want, fail, pairs
from .libraries import imported


def _ranks(facts: Facts, want: Want) -> str:
    imported(facts, want)
    host = next(iter(facts.values()))["identity"]["host"]
    for rank, fact in facts.items():
        identity = fact["identity"]
        if left := [name for name in identity["strays"] if not name.startswith("TORCHELASTIC_")]:
            fail(f"rank {rank} was started with {', '.join(left)} set", rank)
        found = {key: identity[key] for key in ("rank", "world_size", "host")}
        wanted = {"rank": rank, "world_size": want.ranks, "host": host}
        if found != wanted:
            fail(f"rank {rank} reports {pairs(found)}; expected {pairs(wanted)}", rank)
    if len({fact["identity"]["pid"] for fact in facts.values()}) < len(facts):
        fail("two ranks are the same process")
    return f"torch {want.torch}"


CHECKS = (
    Check("S4.ranks", ("identity", "init"), _ranks, each=True),
    *store.CHECKS,
    *collectives.CHECKS,
    *step.CHECKS,
)
"""On any host."""
ON_GPUS = (
    *CHECKS[:2],
    *collectives.CHECKS,
    # A broken path between two GPUs is to be seen before the step that would hang on it.
    *collectives.ON_GPUS,
    *step.CHECKS,
    *bandwidth.CHECKS,
)
AFTERWARDS = (*transport.CHECKS, *precision.CHECKS)
"""On GPU hosts, decided by the launcher when the ranks have ended."""
ACROSS = tuple(check for check in CHECKS if check.across)
