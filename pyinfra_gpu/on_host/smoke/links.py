"""S4 on GPUs: which way the data between them goes, how fast, and over which PCIe link.

A wrong way is silent: all-reduce over the network stack of one host gives right results, only far
slower. An idle GPU drops its link to generation 1, so only what is seen under load counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import nvidia_smi
from .check import Fact, Facts, Want, fail, skip, warn
from .device import median_seconds, synchronize
from .gpus import tested
from .nvidia_smi import Row, integer, reasons
from .rank import Rank, dist, torch

_MIB = 256
_SAMPLES = 4
"""So often the links are looked at under load; nvidia-smi takes 0.1 s for it."""
_ROUND_SECONDS, _LARGEST_ROUND = 1.0, 1000
_GEN, _WIDTH, _REASONS = (
    *("pcie.link.gen.current", "pcie.link.width.current", "clocks_event_reasons.active"),
)
LINK_WARN, LINK_FAIL = 0.25, 0.10
"""Fractions of the loaded PCIe link's one-way rate for all-reduce bus bandwidth. No figure is
published for two stock RTX 5090; through host memory 0.35 to 0.6 is expected (derived)."""
_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""GB/s of one PCIe lane in one direction, by generation (PCI-SIG, after line coding)."""
_HARMFUL = {
    *("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"),
}
"""What a sound host does not show. Reaching the power limit under load is what GPUs do."""
# "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "Channel 01 : 1[c3000] -> 0[3000] via
# SHM/direct/direct comm 0x55..", "Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0"; in the
# brackets is the device's number, in older NCCL its bus.
_CHANNEL = re.compile(r"Channel \d+(?:/\d+)? : .* via ([A-Z][A-Za-z0-9]*(?:/[A-Za-z]+)*)")
_INTERFACE = re.compile(r"(?:Bootstrap|NET/Socket)\s*:\s*Using (?:\[\d+\])?([^\s:]+):")


def measure(it: Rank) -> None:
    """Record the fact `bandwidth`; rank 0 also looks at every GPU's link for all of them.

    One rank alone reduces nothing, so it copies from the host instead.
    """
    size = _MIB * 2**20
    with it.journal.measuring("bandwidth") as value:
        tensor = torch.zeros(size // 4, dtype=torch.float32, device=it.device)  # sums do not grow
        work: Callable[[], object] = lambda: dist.all_reduce(tensor)  # noqa: E731
        if it.world_size == 1:
            source = torch.zeros(size // 4, pin_memory=it.device.type == "cuda")
            work = lambda: tensor.copy_(source, non_blocking=True)  # noqa: E731
        # All ranks must agree on the number of runs, or they would wait for each other for ever.
        slowest = torch.tensor([median_seconds(it.device, work, warm_ups=5)], device=it.device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        count = min(_LARGEST_ROUND, math.ceil(_ROUND_SECONDS / max(float(slowest), 1e-6)))
        samples: list[Row] = []
        error = None
        for _ in range(_SAMPLES):
            for _ in range(count):
                work()
            if it.rank == 0:  # on a GPU, the work goes on while nvidia-smi is asked
                found, why = nvidia_smi.read(nvidia_smi.run, ("index", _GEN, _WIDTH, _REASONS))
                samples += found
                error = error or why
            synchronize(it.device)
        value["link"], value["link_error"] = summary(samples), error
        # Bus bandwidth is what a link carries in one direction whatever the number of ranks, as
        # nccl-tests defines it; for two ranks bytes / time.
        factor = 2 * (it.world_size - 1) / it.world_size or 1.0
        value["busbw_gb_s"] = round(size / float(slowest) * factor / 1e9, 3)


def summary(samples: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Return per GPU index the largest of what was seen, since a link only falls back where there
    is a pause; `throttle` are all reasons seen. None: not told by this driver.
    """
    found: dict[str, dict[str, Any]] = {}
    for gpu in samples:
        best = found.setdefault(str(gpu["index"]), {"gen": None, "width": None, "throttle": []})
        for key, field in ("gen", _GEN), ("width", _WIDTH):
            best[key] = max(filter(None, (best[key], integer(gpu[field]))), default=None)
        best["throttle"] = sorted({*best["throttle"], *reasons(integer(gpu[_REASONS]) or 0)})
    return found


def read_logs(directory: Path) -> dict[str, Any]:
    """Return what all ranks' NCCL logs in `directory` say: the ways of their channels
    ("SHM/direct/direct"), and the interfaces by which NCCL's processes found each other.
    """
    text = "\n".join(each.read_text(errors="replace") for each in directory.glob("nccl.*.log"))
    return {
        "ways": sorted(set(_CHANNEL.findall(text))),
        "interfaces": sorted(set(_INTERFACE.findall(text))),
    }


# -- judged


def _shown(link: Mapping[str, Any]) -> str:
    return f"Gen{link['gen']} x{link['width']}"


def link(mine: Fact, want: Want, _: Facts) -> str:
    """Judge GPUs and their PCIe links under load; idle ones are slowed down to save power."""
    found = mine["bandwidth"]
    for index, gpu in tested(want).items():
        seen = found["link"].get(str(index), {})
        if None in (seen.get("gen"), seen.get("width")):
            why = found["link_error"] or "nvidia-smi does not tell"
            warn(f"GPU {index}: its loaded link was not seen ({why})", index)
        if bad := [name for name in seen["throttle"] if name in _HARMFUL]:
            reasons = f"{', '.join(bad)}: look at cooling and power cables"
            warn(f"GPU {index} is slowed down under load by {reasons}", index)
        best = {key: integer(gpu[f"pcie.link.{key}.max"]) for key in ("gen", "width")}
        if any(seen[key] < (most or 0) for key, most in best.items()):
            could = f"it could at {_shown(best)}: slot, riser or shared lanes"
            warn(f"GPU {index} runs at {_shown(seen)} under load, {could}", index)
    return ", ".join(sorted({*map(_shown, found["link"].values())}))


def bandwidth(mine: Fact, want: Want, _: Facts) -> str:
    """Judge the all-reduce by the slowest loaded PCIe link; NVLink carries more than that."""
    found = mine["bandwidth"]
    text = f"{found['busbw_gb_s']:.1f} GB/s"
    if want.ranks == 1:
        skip(f"one GPU: no all-reduce; it copies {text} from the host")
    rates = [_LANE.get(seen["gen"], 0) * (seen["width"] or 0) for seen in found["link"].values()]
    if not (slowest := min(filter(None, rates), default=None)):
        return f"{text}, not judged: the loaded link was not seen"
    share = found["busbw_gb_s"] / slowest
    detail = f"{text}, {share:.0%} of the loaded link's {slowest:.0f} GB/s"
    if share < LINK_WARN:
        (fail if share < LINK_FAIL else warn)(detail)
    return detail


def transport(mine: Fact, want: Want, _: Facts) -> str:
    """Judge the way that NCCL's data took."""
    ways = mine["transport"]["ways"]
    text, kinds = ", ".join(ways), {way.partition("/")[0] for way in ways}
    if want.ranks == 1:
        skip("one GPU: NCCL has nothing to carry")
    if not kinds:
        warn("NCCL's logs name no channel")
    if "NET" in kinds:
        fail(f"data between GPUs of one host goes over the network ({text}): /dev/shm, cgroups")
    return text


def own_choice(mine: Fact, _: Want, __: Facts) -> str:
    """Judge collectives by NCCL's own choice of interface.

    The test tells NCCL to use the loopback interface. A first training run does not, and may meet
    a bridge of Docker's, a VPN, or a hostname that does not resolve.
    """
    found = mine["own_choice"]
    by = ", ".join(found["interfaces"]) or "an interface that its log does not name"
    if found["result"] != "passed":
        detail = f"left to itself NCCL chose {by}, and an all-reduce {found['result']}"
        warn(f"{detail}: set NCCL_SOCKET_IFNAME for training; {found['why']}")
    return f"by {by}"
