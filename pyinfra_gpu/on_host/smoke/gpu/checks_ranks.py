"""S4 on GPU hosts: which GPU each rank had, how their data went, how fast, in which formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..judge.check import Check, Expected, Facts, Finding, measured
from . import expected as known
from . import one_gpu, precision
from .checks_device import host_gpu
from .ranks import REHEARSAL_1GPU


def _warn(measured: Any, wanted: Any, detail: str, rank: int | None = None) -> Finding:
    return Finding(True, measured, wanted, detail, rank, status="warn")


def _identity(facts: Facts, expected: Expected) -> Finding:
    """Whether each rank has a GPU of its own, one of those the host lists, and the same NCCL."""
    gpus = {rank: fact["gpu"] for rank, fact in facts.items()}
    uuids = [gpu["uuid"] for gpu in gpus.values()]
    listed = {gpu["uuid"] for gpu in (expected.gpu_host or {}).get("gpus", [])}
    shared = expected.mode == REHEARSAL_1GPU
    for rank, gpu in gpus.items():
        if gpu["uuid"] is not None and gpu["uuid"] not in listed and not _divided(expected):
            detail = f"rank {rank} is on {gpu['uuid']}, which nvidia-smi does not list"
            return Finding(False, gpu["uuid"], sorted(map(str, listed)), detail, rank)
        if gpu["nccl"] != gpus[min(gpus)]["nccl"]:
            detail = (
                f"rank {rank} has NCCL {gpu['nccl']}, rank {min(gpus)} {gpus[min(gpus)]['nccl']}"
            )
            return Finding(False, gpu["nccl"], gpus[min(gpus)]["nccl"], detail, rank)
    distinct = len(set(uuids)) == len(uuids)
    if None in uuids:
        return _warn(uuids, "one GPU a rank", "torch does not tell which GPU a rank is on")
    if shared:
        one = len(set(uuids)) == 1
        detail = f"{len(uuids)} ranks on one GPU" if one else "the ranks are on different GPUs"
        return Finding(one, uuids, "the same GPU", detail)
    detail = f"{len(uuids)} ranks, {len(uuids)} GPUs" if distinct else "two ranks share a GPU"
    return Finding(distinct, uuids, "one GPU a rank", detail)


def _divided(expected: Expected) -> bool:
    gpus = (expected.gpu_host or {}).get("gpus", [])
    return any(gpu["mig"] == "Enabled" for gpu in gpus)


def _pairs(facts: Facts, expected: Expected) -> Finding:
    seen = set()
    for rank, fact in facts.items():
        for result in fact["pairs"]["results"]:
            first, second = result["ranks"]
            if result["wrong"]:
                index, measured, wanted = result["first"]
                detail = (
                    f"between GPUs {first} and {second}: rank {rank} has {result['wrong']} of "
                    f"{result['elements']} elements wrong, the first is element {index}: "
                    f"{measured!r} in place of {wanted!r}"
                )
                return Finding(False, {"wrong_elements": result["wrong"]}, 0, detail, rank)
            seen.add((first, second, rank))
    world = expected.ranks
    if world == 2:
        return Finding(True, 1, 1, "two GPUs are one pair: the tests above are its")
    pairs = [(a, b) for a in range(world) for b in range(a + 1, world)]
    missing = [pair for pair in pairs for rank in pair if (*pair, rank) not in seen]
    if missing and len(facts) == world:
        detail = f"the pair of GPUs {missing[0][0]} and {missing[0][1]} was not compared"
        return Finding(False, len(pairs) - len(set(missing)), len(pairs), detail)
    return Finding(True, len(pairs), len(pairs), f"all {len(pairs)} pairs")


def _samples(facts: Facts) -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = facts[0]["bandwidth"].get("link") or {}
    return found


def _link(facts: Facts, expected: Expected) -> Finding:
    """The PCIe link while it carried data; an idle one is slowed down to save power."""
    samples = _samples(facts)
    names = {index: f"Gen{s['gen']} x{s['width']}" for index, s in samples.items()}
    for index in range(expected.ranks):
        seen, gpu = samples.get(str(index)), host_gpu(expected, index)
        if seen is None or seen["gen"] is None or seen["width"] is None:
            why = facts[0]["bandwidth"].get("link_error") or "nvidia-smi does not tell"
            return _warn(names, None, f"GPU {index}: its loaded link was not seen ({why})")
        if gpu.get("gen_max") is None or gpu.get("width_max") is None:
            continue
        now, best = (seen["gen"], seen["width"]), (gpu["gen_max"], gpu["width_max"])
        if now[0] < best[0] or now[1] < best[1]:
            rates = known.link_rate(*now), known.link_rate(*best)
            speeds = f" ({rates[0]:.0f} of {rates[1]:.0f} GB/s)" if all(rates) else ""
            detail = (
                f"GPU {index} runs at Gen{now[0]} x{now[1]} under load, it could at "
                f"Gen{best[0]} x{best[1]}{speeds}: slot, riser or shared lanes"
            )
            wanted = f"Gen{best[0]} x{best[1]}"
            return _warn(names, wanted, detail, index)
    return Finding(True, names, None, ", ".join(sorted(set(names.values()))))


def _bandwidth(facts: Facts, expected: Expected) -> Finding:
    """Against the slowest loaded PCIe link, unless NVLink carries the data."""
    results = {rank: fact["bandwidth"] for rank, fact in facts.items()}
    slowest = min(results, key=lambda rank: results[rank]["busbw_gb_s"])
    reached = results[slowest]["busbw_gb_s"]
    text = f"{reached:.1f} GB/s"
    links = (expected.gpu_host or {}).get("links") or {}
    if links and all(way.startswith("NV") for way in links.values()):
        return Finding(True, reached, None, f"{text} over {next(iter(links.values()))}")
    rates = _rates(facts)
    if not rates:
        return Finding(True, reached, None, f"{text}, not judged: the loaded link was not seen")
    rate = min(rates)
    share = reached / rate
    detail = f"{text}, {share:.0%} of the loaded link's {rate:.0f} GB/s"
    if share < known.LINK_FAIL:
        return Finding(False, reached, round(known.LINK_FAIL * rate, 2), detail, slowest)
    if share < known.LINK_WARN:
        return _warn(reached, round(known.LINK_WARN * rate, 2), detail, slowest)
    return Finding(True, reached, round(known.LINK_WARN * rate, 2), detail)


def _rates(facts: Facts) -> list[float]:
    seen = [(s["gen"], s["width"]) for s in _samples(facts).values()]
    known_links = [(gen, width) for gen, width in seen if gen is not None and width is not None]
    rates = [known.link_rate(gen, width) for gen, width in known_links]
    return [rate for rate in rates if rate is not None]


def _transport(facts: Facts, expected: Expected) -> Finding:
    found = facts[0]["transport"]
    kinds, ways = set(found["kinds"]), found["ways"]
    text = ", ".join(ways)
    if not kinds:
        detail = f"NCCL's {found['logs']} logs name no channel"
        return _warn([], "P2P, SHM or NET", detail)
    gpus = (expected.gpu_host or {}).get("gpus", [])
    if expected.mode == REHEARSAL_1GPU:
        nccl = found["versions"][0].split(".") if found["versions"] else []
        by_net = one_gpu.route([int(part) for part in nccl]) == one_gpu.HOST_ID
        return Finding(True, ways, "NET" if by_net else "any", f"{text}, a rehearsal's")
    if "NET" in kinds:
        detail = f"data between GPUs of one host goes over the network ({text}): /dev/shm, cgroups"
        return Finding(False, ways, "P2P or SHM", detail)
    links = (expected.gpu_host or {}).get("links") or {}
    nvlink = any(way.startswith("NV") for way in links.values())
    if nvlink and "P2P" not in kinds:
        return _warn(ways, "P2P", f"the GPUs have NVLink, but NCCL uses {text}")
    if "P2P" in kinds and not nvlink and any(known.is_geforce(gpu["name"]) for gpu in gpus):
        detail = f"peer-to-peer ({text}) on GeForce: a patched driver, not NVIDIA's"
        return _warn(ways, "SHM", detail)
    return Finding(True, ways, "P2P" if nvlink else "P2P or SHM", text)


def _precision(facts: Facts, _: Expected) -> Finding:
    """bf16 must work, and nothing may give wrong numbers; what else fails is a warning."""
    found = facts[0]["precision"]
    formats = found["formats"]
    statuses = {name: entry["status"] for name, entry in formats.items()}
    wanted = "native or unsupported (expected)"
    text = ", ".join(f"{name} {status.partition(' ')[0]}" for name, status in statuses.items())
    if best := found["best"]:
        text += f"; best {best}"
    for name, entry in formats.items():
        wrong = entry["status"] == precision.FAILED and "ratio" in entry
        if wrong or (name == "bf16" and entry["status"] != precision.NATIVE):
            detail = f"{name} {entry['status']}: {entry['reason']}"
            return Finding(False, statuses, wanted, detail)
    for name, entry in formats.items():
        if entry["status"] in (precision.FAILED, precision.NOT_RUN):
            fallback = f"; use {best}" if best else ""
            detail = f"{name} {entry['status']}: {entry['reason']}{fallback}"
            return _warn(statuses, wanted, detail)
    return Finding(True, statuses, wanted, text)


PAIR_CHECKS = measured("gpu.pairs", Check("S4.pairs_exact", ("pairs",), _pairs, each=True))
RANK_CHECKS: tuple[Check, ...] = (
    Check("S4.gpu_identity", ("gpu",), _identity),
    *measured(
        "gpu.bandwidth",
        Check("S4.link", ("bandwidth",), _link),
        Check("S4.bandwidth", ("bandwidth",), _bandwidth),
    ),
)
RUN_CHECKS: tuple[Check, ...] = (
    Check("S4.transport", ("transport",), _transport),
    Check("S4.precision", ("precision",), _precision),
)
