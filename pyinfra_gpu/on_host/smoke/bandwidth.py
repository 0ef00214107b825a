"""S4 on GPUs: how fast a large all-reduce is, and what the PCIe link does meanwhile.

An idle GPU drops its link to generation 1, so only what is seen under load counts.
"""

from __future__ import annotations

import functools
import math
import operator
import statistics
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from . import nvidia_smi
from .check import Facts, Want, fail, skip, warn
from .device import seconds, synchronize
from .gpus import on_nvlink, tested
from .lazy import dist, torch
from .nvidia_smi import Run, bitmask, integer, number, reasons

if TYPE_CHECKING:
    from .worker import Rank

_MIB = 256
_WARM_UPS, _RUNS = 5, 20
_SAMPLES = 4
"""So often the links are looked at under load; nvidia-smi takes 0.1 s for it."""
_ROUND_SECONDS, _LARGEST_ROUND = 1.0, 1000
_FIELDS: nvidia_smi.Fields = {
    "index": ("index", str),
    "gen": ("pcie.link.gen.current", integer),
    "width": ("pcie.link.width.current", integer),
    "sm_mhz": ("clocks.current.sm", integer),
    "power_w": ("power.draw", number),
    "temperature_c": ("temperature.gpu", integer),
    "throttle": ("clocks_event_reasons.active", bitmask),
}
LINK_WARN, LINK_FAIL = 0.25, 0.10
"""Fractions of the loaded PCIe link's one-way rate for all-reduce bus bandwidth. No figure is
published for two stock RTX 5090; through host memory 0.35 to 0.6 is expected (derived)."""
_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""GB/s of one PCIe lane in one direction, by generation (PCI-SIG, after line coding)."""


def summary(samples: list[list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return per GPU index the largest of what was seen, since a link only falls back where there
    is a pause; `throttle` are all reasons seen; None: not told by this driver.
    """
    found: dict[str, dict[str, Any]] = {}
    for index in {gpu["index"]: None for sample in samples for gpu in sample}:
        seen = [gpu for sample in samples for gpu in sample if gpu["index"] == index]
        told = {key: [gpu[key] for gpu in seen if gpu[key] is not None] for key in seen[0]}
        best = {key: max(values, default=None) for key, values in told.items() if key != "index"}
        masks = told["throttle"]
        best["throttle"] = reasons(functools.reduce(operator.or_, masks)) if masks else None
        found[index] = {**best, "gb_s": link_rate(best)}
    return found


def link_rate(seen: Mapping[str, Any]) -> float | None:
    """Return a PCIe link's one-way rate in GB/s, None where it is not known."""
    lane, width = _LANE.get(seen["gen"]), seen["width"]
    return None if lane is None or not width else round(lane * width, 3)


def measure(it: Rank, mib: int = _MIB, run: Run = nvidia_smi.run) -> None:
    """Record the fact `bandwidth`; rank 0 also looks at every GPU's link for all of them.

    One rank alone reduces nothing, so it copies from the host instead.
    """
    size = mib * 2**20
    with it.journal.measuring("bandwidth") as value:
        tensor = torch.ones(size // 4, dtype=torch.float32, device=it.device)
        work: Callable[[], object] = lambda: dist.all_reduce(tensor)  # noqa: E731
        if it.world_size == 1:
            source = torch.ones(size // 4, pin_memory=it.device.type == "cuda")
            work = lambda: tensor.copy_(source, non_blocking=True)  # noqa: E731
        median = statistics.median(_timed(tensor, work))
        loaded = _load(tensor, work, median, run if it.rank == 0 else None)
        value["link"], value["link_error"] = summary(loaded[0]), loaded[1]
        # Bus bandwidth is what a link carries in one direction whatever the number of ranks, as
        # nccl-tests defines it; for two ranks bytes / time.
        factor = 2 * (it.world_size - 1) / it.world_size or 1.0
        value["bytes"], value["median_s"] = size, round(median, 6)
        value["busbw_gb_s"] = round(size / median * factor / 1e9, 3)


def _timed(tensor: torch.Tensor, work: Callable[[], object]) -> list[float]:
    """Return the seconds of each measured run."""
    for _ in range(_WARM_UPS):
        work()
    took = []
    for _ in range(_RUNS):
        # The values would overflow after some 120 doublings, and the speed must not depend on it.
        tensor.fill_(1.0)
        synchronize(tensor.device)
        took.append(seconds(tensor.device, work))
    return took


def _load(
    tensor: torch.Tensor, work: Callable[[], object], median: float, run: Run | None
) -> tuple[list[list[dict[str, Any]]], str | None]:
    """Keep the links loaded; return what nvidia-smi says meanwhile, where it is to be asked."""
    # All ranks must agree on the number, or they would wait for each other for ever.
    slowest = torch.tensor([median], dtype=torch.float64, device=tensor.device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    count = min(_LARGEST_ROUND, math.ceil(_ROUND_SECONDS / max(float(slowest), 1e-6)))
    samples, error = [], None
    for _ in range(_SAMPLES):
        for _ in range(count):
            tensor.fill_(1.0)
            work()
        if run is not None:  # on a GPU, the work goes on while nvidia-smi is asked
            found, why = nvidia_smi.read(run, _FIELDS)
            samples += [found] if found else []
            error = error or why
        synchronize(tensor.device)
    return samples, error


def link(facts: Facts, want: Want) -> str:
    """Judge the PCIe link while it carried data; an idle one is slowed down to save power."""
    found = facts[0]["bandwidth"]
    for gpu in tested(want):
        index, seen = gpu["index"], found["link"].get(str(gpu["index"]), {})
        if None in (seen.get("gen"), seen.get("width")):
            why = found["link_error"] or "nvidia-smi does not tell"
            warn(f"GPU {index}: its loaded link was not seen ({why})", index)
        best = {"gen": gpu["gen_max"], "width": gpu["width_max"]}
        if None not in best.values() and any(seen[key] < best[key] for key in best):
            rates = link_rate(seen), link_rate(best)
            speeds = f" ({rates[0]:.0f} of {rates[1]:.0f} GB/s)" if all(rates) else ""
            could = f"it could at {_shown(best)}{speeds}: slot, riser or shared lanes"
            warn(f"GPU {index} runs at {_shown(seen)} under load, {could}", index)
    return ", ".join(sorted({_shown(seen) for seen in found["link"].values()}))


def _shown(link: Mapping[str, Any]) -> str:
    return f"Gen{link['gen']} x{link['width']}"


def bandwidth(facts: Facts, want: Want) -> str:
    """Judge the all-reduce by the slowest loaded PCIe link, unless NVLink carries the data."""
    speeds = {rank: fact["bandwidth"]["busbw_gb_s"] for rank, fact in facts.items()}
    slowest = min(speeds, key=lambda rank: speeds[rank])
    text = f"{speeds[slowest]:.1f} GB/s"
    if want.ranks == 1:
        skip(f"one GPU: no all-reduce; it copies {text} from the host")
    if nvlink := on_nvlink(want):
        return f"{text} over {nvlink}"
    rates = [rate for seen in facts[0]["bandwidth"]["link"].values() if (rate := link_rate(seen))]
    if not rates:
        return f"{text}, not judged: the loaded link was not seen"
    share = speeds[slowest] / min(rates)
    detail = f"{text}, {share:.0%} of the loaded link's {min(rates):.0f} GB/s"
    if share < LINK_WARN:
        (fail if share < LINK_FAIL else warn)(detail, slowest)
    return detail
