"""Python objects that rank 0 sends to all, as programs hand out settings and names."""

from __future__ import annotations

import hashlib
import importlib.util

import torch
import torch.distributed as dist

from .rank import Rank

_SENT: tuple[object, ...] = (
    {"run": "größe-7", "learning_rate": 3e-4, "betas": (0.9, 0.95), "resume": None},
    bytes(range(256)) * 2**12,
)
"""Small and of many types, and one of 1 MiB."""
_SHOWN = 100


def measure(it: Rank) -> None:
    """Record the fact "object_list": what this rank holds after the exchange, in words.

    torch packs objects by NumPy, which it does not ask for: where a rank has none, nothing is sent.
    """
    with it.journal.measuring("object_list") as value:
        value["without_numpy"] = _ranks_without_numpy(it)
        if value["without_numpy"]:
            return
        held = list(_SENT) if it.rank == 0 else [None] * len(_SENT)
        dist.broadcast_object_list(held, 0, device=it.device)
        value["held"] = [_told(each) for each in held]


def _ranks_without_numpy(it: Rank) -> int:
    lacks = importlib.util.find_spec("numpy") is None
    count = torch.tensor([int(lacks)], dtype=torch.int32, device=it.device)
    dist.all_reduce(count)
    return int(count.item())


def _told(each: object) -> str:
    """Return short words that are others for another object."""
    text = ascii(each)
    if len(text) <= _SHOWN:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{type(each).__name__} of {len(text)} characters with SHA-256 {digest[:16]}"
