"""S4 on GPUs: which way the data between them goes, how fast, and over which PCIe link.

A wrong way is silent: all-reduce over the network stack of one host gives right results, only far
slower; peer-to-peer that a patched driver switched on may give wrong ones. An idle GPU drops its
link to generation 1, so only what is seen under load counts.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import nvidia_smi
from .check import Facts, Want, fail, skip, warn
from .device import median_seconds, synchronize
from .gpus import on_nvlink, tested
from .lazy import dist, torch
from .nvidia_smi import Run, bitmask, integer, reasons

if TYPE_CHECKING:
    from .worker import Rank

_MIB = 256
_SAMPLES = 4
"""So often the links are looked at under load; nvidia-smi takes 0.1 s for it."""
_ROUND_SECONDS, _LARGEST_ROUND = 1.0, 1000
_FIELDS: nvidia_smi.Fields = {
    "index": ("index", str),
    "gen": ("pcie.link.gen.current", integer),
    "width": ("pcie.link.width.current", integer),
    "throttle": ("clocks_event_reasons.active", bitmask),
}
LINK_WARN, LINK_FAIL = 0.25, 0.10
"""Fractions of the loaded PCIe link's one-way rate for all-reduce bus bandwidth. No figure is
published for two stock RTX 5090; through host memory 0.35 to 0.6 is expected (derived)."""
_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""GB/s of one PCIe lane in one direction, by generation (PCI-SIG, after line coding)."""
_LARGEST = 8 * 2**20
"""Bytes of one NCCL log that are read; two ranks write some hundred lines."""
# "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "Channel 01 : 1[c3000] -> 0[3000] via
# SHM/direct/direct comm 0x55..", "Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0"; in the
# brackets is the device's number, in older NCCL its bus.
_CHANNEL = re.compile(
    r"Channel \d+(?:/\d+)? : \d+\[[0-9a-f]+\] -> \d+\[[0-9a-f]+\]"
    r" (?:\[(?:send|receive)\] )?via (?P<way>[A-Z][A-Za-z0-9]*(?:/[A-Za-z0-9_./]+)?)"
)
_INTERFACE = re.compile(r"(?:Bootstrap|NET/Socket)\s*:\s*Using (?:\[\d+\])?([^\s:]+):")


def measure(it: Rank, mib: int = _MIB, run: Run = nvidia_smi.run) -> None:
    """Record the fact `bandwidth`; rank 0 also looks at every GPU's link for all of them.

    One rank alone reduces nothing, so it copies from the host instead.
    """
    size = mib * 2**20
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
        samples, error = [], None
        for _ in range(_SAMPLES):
            for _ in range(count):
                work()
            if it.rank == 0:  # on a GPU, the work goes on while nvidia-smi is asked
                found, why = nvidia_smi.read(run, _FIELDS)
                samples += [found] if found else []
                error = error or why
            synchronize(it.device)
        value["link"], value["link_error"] = summary(samples), error
        # Bus bandwidth is what a link carries in one direction whatever the number of ranks, as
        # nccl-tests defines it; for two ranks bytes / time.
        factor = 2 * (it.world_size - 1) / it.world_size or 1.0
        value["bytes"] = size
        value["busbw_gb_s"] = round(size / float(slowest) * factor / 1e9, 3)


def summary(samples: list[list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return per GPU index the largest of what was seen, since a link only falls back where there
    is a pause; `throttle` are all reasons seen; None: not told by this driver.
    """
    found: dict[str, dict[str, Any]] = {}
    for index in {gpu["index"]: None for sample in samples for gpu in sample}:
        seen = [gpu for sample in samples for gpu in sample if gpu["index"] == index]
        told = {key: [gpu[key] for gpu in seen if gpu[key] is not None] for key in _FIELDS}
        masks = told["throttle"]
        found[index] = {
            "gen": max(told["gen"], default=None),
            "width": max(told["width"], default=None),
            "throttle": reasons(functools.reduce(operator.or_, masks)) if masks else None,
        }
    return found


def read_logs(directory: Path) -> dict[str, Any]:
    """Return what all ranks' NCCL logs in `directory` say. Never raises.

    `ways` counts the channels by way ("SHM/direct/direct"); `interfaces` are those by which NCCL's
    processes found each other.
    """
    texts = []
    for path in sorted(directory.glob("nccl.*.log")):
        try:
            with path.open("rb") as file:
                texts.append(file.read(_LARGEST).decode(errors="replace"))
        except OSError:
            continue
    text = "\n".join(texts)
    # Without the number of the network card: "NET/Socket/0" is "NET/Socket".
    ways = (re.sub(r"/\d+(?=/|$)", "", way.rstrip("./")) for way in _CHANNEL.findall(text))
    return {
        "logs": len(texts),
        "ways": dict(sorted(Counter(ways).items())),
        "interfaces": sorted(set(_INTERFACE.findall(text))),
    }


# -- judged

_HARMFUL = {
    "hw_slowdown": "the hardware halves its clock or worse",
    "sw_thermal_slowdown": "too hot, check fans and air flow",
    "hw_thermal_slowdown": "far too hot, check fans and air flow",
    "hw_power_brake_slowdown": "the power supply asks for less, check its cables",
}
"""What a sound host does not show. Reaching the power limit under load is what GPUs do."""


def _rate(seen: Mapping[str, Any]) -> float | None:
    """Return a PCIe link's one-way rate in GB/s, None where it is not known."""
    lane, width = _LANE.get(seen["gen"]), seen["width"]
    return lane * width if lane and width else None


def _shown(links: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(sorted({f"Gen{each['gen']} x{each['width']}" for each in links}))


def link(facts: Facts, want: Want) -> str:
    """Judge the PCIe links while they carried data; an idle one is slowed down to save power."""
    found = facts[0]["bandwidth"]
    for gpu in tested(want):
        index, seen = gpu["index"], found["link"].get(str(gpu["index"]), {})
        if None in (seen.get("gen"), seen.get("width")):
            why = found["link_error"] or "nvidia-smi does not tell"
            warn(f"GPU {index}: its loaded link was not seen ({why})", index)
        best = {"gen": gpu["gen_max"], "width": gpu["width_max"]}
        if None not in best.values() and any(seen[key] < best[key] for key in best):
            rates = _rate(seen), _rate(best)
            speeds = f" ({rates[0]:.0f} of {rates[1]:.0f} GB/s)" if all(rates) else ""
            could = f"it could at {_shown([best])}{speeds}: slot, riser or shared lanes"
            warn(f"GPU {index} runs at {_shown([seen])} under load, {could}", index)
    return _shown([*found["link"].values()])


def bandwidth(facts: Facts, want: Want) -> str:
    """Judge the all-reduce by the slowest loaded PCIe link, unless NVLink carries the data."""
    text = f"{facts[0]['bandwidth']['busbw_gb_s']:.1f} GB/s"
    if want.ranks == 1:
        skip(f"one GPU: no all-reduce; it copies {text} from the host")
    if nvlink := on_nvlink(want):
        return f"{text} over {nvlink}"
    rates = [rate for seen in facts[0]["bandwidth"]["link"].values() if (rate := _rate(seen))]
    if not rates:
        return f"{text}, not judged: the loaded link was not seen"
    share = facts[0]["bandwidth"]["busbw_gb_s"] / min(rates)
    detail = f"{text}, {share:.0%} of the loaded link's {min(rates):.0f} GB/s"
    if share < LINK_WARN:
        (fail if share < LINK_FAIL else warn)(detail)
    return detail


def throttled(facts: Facts, want: Want) -> str:
    """Judge what slowed the GPUs down under load."""
    for gpu in tested(want):
        seen = facts[0]["bandwidth"]["link"].get(str(gpu["index"]), {}).get("throttle") or ()
        if bad := next((name for name in seen if name in _HARMFUL), None):
            warn(f"GPU {gpu['index']} is slowed down ({bad}): {_HARMFUL[bad]}", gpu["index"])
    return "under load"


def transport(facts: Facts, want: Want) -> str:
    """Judge the way that NCCL's data took."""
    found = facts[0]["transport"]
    text, kinds = ", ".join(found["ways"]), {way.partition("/")[0] for way in found["ways"]}
    if want.ranks == 1:
        skip("one GPU: NCCL has nothing to carry")
    if not kinds:
        warn(f"NCCL's {found['logs']} logs name no channel")
    if "NET" in kinds:
        fail(f"data between GPUs of one host goes over the network ({text}): /dev/shm, cgroups")
    if any(way.startswith("NV") for way in want.gpu_host["links"]) and "P2P" not in kinds:
        warn(f"the GPUs have NVLink, but NCCL uses {text}")
    names = " ".join(gpu["name"] for gpu in want.gpu_host.get("gpus", []))
    # From these NVIDIA's driver withholds PCIe peer-to-peer.
    if "P2P" in kinds and not on_nvlink(want) and re.search("GeForce|TITAN", names):
        warn(f"peer-to-peer ({text}) on GeForce: a patched driver, not NVIDIA's")
    return text


def own_choice(facts: Facts, _: Want) -> str:
    """Judge an all-reduce by NCCL's own choice of interface.

    The test tells NCCL to use the loopback interface. A first training run does not, and may meet
    a bridge of Docker's, a VPN, or a hostname that does not resolve.
    """
    found = facts[0]["own_choice"]
    by = ", ".join(found["interfaces"]) or "an interface that its log does not name"
    if found["result"] != "passed":
        detail = f"left to itself NCCL chose {by}, and an all-reduce {found['result']}"
        warn(f"{detail}: set NCCL_SOCKET_IFNAME for training; {found['why']}")
    return f"by {by}"
