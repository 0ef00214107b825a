"""All-reduces alone, the largest of 1 MiB: what is tried again where a run hangs."""

from __future__ import annotations

from .. import exactness
from . import collectives
from .rank import Rank


def measure(it: Rank) -> None:
    """Record the facts "allreduce_float32" and "allreduce_bfloat16"."""
    for kind in exactness.KINDS:
        with it.journal.measuring(f"allreduce_{kind}") as value:
            value["runs"] = collectives.all_reduce_sizes(it, kind, exactness.sizes(1))
