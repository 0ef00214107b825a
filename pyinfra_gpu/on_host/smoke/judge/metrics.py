"""The figures of a run, from the ranks' journals; present as far as the run has come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import exactness
from ..journal import Journal
from . import training


def collect(
    journals: Mapping[int, Journal], ranks: int, began: float, label: str
) -> dict[str, Any]:
    """Return the figures; `began` is when the launcher started, on the journals' clock."""
    known = [journals[rank] for rank in range(ranks) if rank in journals]
    if len(known) < ranks:
        return {}
    figures: dict[str, Any] = {"label": label, "seconds": _seconds(known, began)}
    if all("init" in journal.seconds for journal in known):
        figures["init_s"] = max(journal.seconds["init"] for journal in known)
    if all("step" in journal.facts for journal in known):
        figures |= _training(known)
    figures["allreduce"] = [entry for kind in exactness.KINDS for entry in _all_reduce(known, kind)]
    return figures


def _seconds(known: list[Journal], began: float) -> dict[str, float]:
    """Return how long each stage took on the slowest rank."""
    seconds = {
        name: max(journal.seconds[name] for journal in known)
        for name in known[0].seconds
        if name not in ("identity", "environment") and all(name in j.seconds for j in known)
    }
    starts = [journal.started for journal in known if journal.started is not None]
    return {"launch": round(max(starts) - began, 4), **seconds} if starts else seconds


def _training(known: list[Journal]) -> dict[str, Any]:
    facts = {journal.rank: journal.facts for journal in known}
    drop = training.loss_drop(facts)
    return {
        "loss0": drop.before,
        "loss1": drop.after,
        "loss_drop": drop.before - drop.after,
        "loss_drop_predicted": drop.predicted,
        "taylor_ratio": drop.ratio,
        "lr": facts[0]["step"]["lr"],
        "parameters": facts[0]["gradients"]["elements"],
    }


def _all_reduce(known: list[Journal], kind: str) -> list[dict[str, Any]]:
    """Return per size the best time of the repeats, each as slow as its slowest rank."""
    name = f"allreduce_{kind}"
    if not all(name in journal.facts for journal in known):
        return []
    best: dict[int, float] = {}
    for runs in zip(*(journal.facts[name]["runs"] for journal in known), strict=False):
        slowest = max(run["seconds"] for run in runs)
        size = runs[0]["size"]
        best[size] = min(best.get(size, slowest), slowest)
    return [
        {"kind": kind, "bytes": size, "seconds": seconds, "mb_per_s": _rate(size, seconds)}
        for size, seconds in best.items()
    ]


def _rate(size: int, seconds: float) -> float:
    return round(size / max(seconds, 1e-6) / 1e6, 3)
