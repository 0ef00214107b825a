"""How fast a large all-reduce is, and what the PCIe link does meanwhile."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ..ranks.rank import Rank
from . import device as one_device
from . import link, nvidia_smi
from .nvidia_smi import Run

_MIB = 256
_WARM_UPS = 5
_RUNS = 20
_SAMPLES = 4
"""So often the links are looked at under load; nvidia-smi takes 0.1 s for it, or seconds."""
_LOAD_LIMIT = 8.0
"""Seconds for that; a host whose nvidia-smi takes longer has its links not seen."""
_ROUND_SECONDS = 0.2
_LARGEST_ROUND = 500


def measure(it: Rank, mib: int = _MIB, run: Run = nvidia_smi.run) -> None:
    """Record the fact `bandwidth`; rank 0 also samples every GPU's link for all of them."""
    device = it.device
    with it.journal.measuring("bandwidth") as value:
        tensor = torch.ones(mib * 2**20 // 4, dtype=torch.float32, device=device)
        if it.rank != 0:
            seconds = _loop(tensor, device, lambda: False)
        else:
            with link.Sampler(run) as sampler:
                began = time.monotonic()
                seconds = _loop(tensor, device, lambda: _wanted(sampler, began))
                ended = time.monotonic()
            value["link"] = link.summary(sampler.samples, began, ended)
            value["link_error"] = sampler.error
        value.update(figures(mib * 2**20, it.world_size, seconds))


def _wanted(sampler: link.Sampler, began: float) -> bool:
    """Return whether the links must be kept loaded, because they were not looked at enough."""
    hopeless = sampler.error is not None and not sampler.samples
    late = time.monotonic() > began + _LOAD_LIMIT
    return len(sampler.samples) < _SAMPLES and not late and not hopeless


def _loop(tensor: torch.Tensor, device: torch.device, more: Callable[[], bool]) -> list[float]:
    """Return the seconds of each measured run, then load the links as long as a rank wants it.

    + more: whether this rank wants it
    """
    for _ in range(_WARM_UPS):
        dist.all_reduce(tensor)
    one_device.synchronize(torch, device)
    seconds = []
    for _ in range(_RUNS):
        # The values would overflow after some 120 doublings, and the speed must not depend on it.
        tensor.fill_(1.0)
        one_device.synchronize(torch, device)
        seconds.append(one_device.seconds(torch, device, lambda: dist.all_reduce(tensor)))
    # All ranks must agree on the number, or they would wait for each other for ever.
    slowest = _largest(statistics.median(seconds), device)
    each_round = min(_LARGEST_ROUND, math.ceil(_ROUND_SECONDS / max(slowest, 1e-6)))
    while _largest(float(more()), device):
        for _ in range(each_round):
            tensor.fill_(1.0)
            dist.all_reduce(tensor)
        one_device.synchronize(torch, device)
    return seconds


def _largest(value: float, device: torch.device) -> float:
    """Return the largest of all ranks' values."""
    tensor = torch.tensor([value], dtype=torch.float64, device=device)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return float(tensor)


def figures(size: int, world_size: int, seconds: list[float]) -> dict[str, Any]:
    """Return the median and what follows from it.

    Bus bandwidth is what a link carries in one direction whatever the number of ranks:
    bytes / time * 2 (n - 1) / n, as nccl-tests defines it; for two ranks bytes / time.
    """
    median = statistics.median(seconds)
    factor = 2 * (world_size - 1) / world_size
    return {
        "bytes": size,
        "world": world_size,
        "runs": len(seconds),
        "median_s": round(median, 6),
        "slowest_s": round(max(seconds), 6),
        "busbw_gb_s": round(size / median * factor / 1e9, 3),
    }
