"""The GPU figures of a verdict: what was measured, whether or not it was judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import expected, throttle

AnyFacts = Mapping[int, Mapping[str, Any]]


def figures(
    device_facts: AnyFacts, rank_facts: AnyFacts, run_facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what there is of: arithmetic and memory speed, all-reduce, link, way, formats.

    + device_facts: GPU index -> facts of `device.measure`
    + rank_facts: rank -> facts
    + run_facts: the launcher's facts "transport" and "precision"
    """
    found: dict[str, Any] = {}
    speeds = {index: fact["speed"] for index, fact in device_facts.items() if "speed" in fact}
    if speeds:
        found["bf16_tflops"] = {str(i): speed["bf16_tflops"] for i, speed in speeds.items()}
        found["memory_gb_s"] = {str(i): speed["memory_gb_s"] for i, speed in speeds.items()}
    results = [fact["bandwidth"] for fact in rank_facts.values() if "bandwidth" in fact]
    if results:
        found["allreduce_busbw_gb_s"] = min(result["busbw_gb_s"] for result in results)
        found["allreduce_bytes"] = results[0]["bytes"]
    if samples := rank_facts.get(0, {}).get("bandwidth", {}).get("link"):
        found["link"] = {index: _link(sample) for index, sample in samples.items()}
    if transport := run_facts.get("transport"):
        found["transport"] = transport["ways"]
        found["nccl"] = transport["versions"]
    if precision := run_facts.get("precision"):
        found["precision"] = {
            name: {key: entry[key] for key in ("status", "reason", "tflops") if entry.get(key)}
            for name, entry in precision["formats"].items()
        }
        found["precision_best"] = precision["best"]
    return found


def _link(sample: Mapping[str, Any]) -> dict[str, Any]:
    gen, width = sample["gen"], sample["width"]
    rate = expected.link_rate(gen, width) if gen is not None and width is not None else None
    return {**sample, "gb_s": rate}


def gpu_records(gpu_host: Mapping[str, Any] | None, rank_facts: AnyFacts) -> list[dict[str, Any]]:
    """Return the verdict's `gpus`: each GPU, its link under load (None: not seen), throttling."""
    samples = rank_facts.get(0, {}).get("bandwidth", {}).get("link") or {}
    return [
        _record(gpu, samples.get(str(gpu["index"]), {})) for gpu in (gpu_host or {}).get("gpus", [])
    ]


def _record(gpu: Mapping[str, Any], sample: Mapping[str, Any]) -> dict[str, Any]:
    idle = gpu["throttle_mask"]
    return {
        **{key: gpu[key] for key in ("index", "uuid", "name", "pci", "driver")},
        "cc": gpu["capability"],
        "memory_mib": gpu["memory_mib"],
        "power_limit_w": gpu["power_limit_w"],
        "pcie": {
            "gen_loaded": sample.get("gen"),
            "width_loaded": sample.get("width"),
            "gen_max": gpu["gen_max"],
            "width_max": gpu["width_max"],
        },
        "throttle": sample.get("throttle") or (throttle.reasons(idle) if idle is not None else []),
    }
