"""S1 on GPU hosts: what one GPU does alone, its identity, its memory, its speed.

What is measured takes the device, so that the CPU can stand in for a GPU in tests.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from .check import Fact, Facts, Want, fail, warn
from .gpus import kind_of, tested
from .precision import PLAIN, product
from .rank import Rank, torch

_MEMORY_BYTES = 2**30
_BLOCK_BYTES = 2**26
_MULTIPLIERS = (0x9E3779B97F4A7C15 - 2**64, 0x6A09E667F3BCC909)
"""Odd, so each word's value is its own; about half of all bits set, and other bits each pass."""
_UNITS = {"bf16_tflops": "bf16 TFLOP/s", "memory_gb_s": "GB/s of memory"}
_APART = 0.85
"""Equal GPUs differ by less, in silicon and cooling; the slowest sets everyone's pace."""


def measure(it: Rank) -> None:
    """Record the facts of a rank's own GPU: cuda, device, matmul, memory, speed.

    Raises torch's own error where the GPU cannot even be used; the steps before it are recorded.
    """
    measuring, device, cuda = it.journal.measuring, it.device, torch.cuda
    with measuring("cuda") as value:
        value["built_for"], value["archs"] = torch.version.cuda, cuda.get_arch_list()
        value["devices"] = cuda.device_count() if cuda.is_available() else 0
    with measuring("device") as value:
        cuda.set_device(device)
        seen = cuda.get_device_properties(device)
        value["uuid"], value["name"] = f"GPU-{seen.uuid}", seen.name
        value["capability"] = [seen.major, seen.minor]
    with measuring("matmul") as value:
        value.update({name: product(device, wanted) for name, wanted in PLAIN.items()})
    with measuring("memory") as value:
        value.update(memory(device, _MEMORY_BYTES))
    with measuring("speed") as value:
        value.update(speed(device, 8192, 2**30))
    cuda.empty_cache()  # what comes next needs some of it outside of torch


def memory(device: torch.device, size: int) -> dict[str, Any]:
    """Write `size` bytes of which every word has its own value, then read all of them back.

    Twice, with other values. All is written before anything is read, so a word that aliases
    another (a broken address line) is seen too; `wrong` counts words of 8 bytes.
    """
    words = size // 8
    buffer = torch.empty(words, dtype=torch.int64, device=device)
    block = min(words, _BLOCK_BYTES // 8)
    wrong = 0

    def values(multiplier: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for start in range(0, words, block):
            here = buffer[start : start + block]
            numbers = torch.arange(start + 1, start + 1 + here.numel(), device=device)
            yield here, numbers * multiplier  # wraps around, as integers of 64 bits do

    for multiplier in _MULTIPLIERS:
        for here, wanted in values(multiplier):
            here.copy_(wanted)
        wrong += sum(int((here != wanted).sum()) for here, wanted in values(multiplier))
    return {"words": words, "wrong": wrong}


def speed(device: torch.device, size: int, copy_bytes: int) -> dict[str, Any]:
    """Return bf16 TFLOP/s of a `size` cubed product, and GB/s of a copy (read plus written)."""
    left, right = (torch.randn(size, size, dtype=torch.bfloat16, device=device) for _ in range(2))
    multiplied = median_seconds(device, lambda: left @ right)
    source = torch.ones(copy_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = median_seconds(device, lambda: target.copy_(source))
    return {
        "bf16_tflops": round(2 * size**3 / multiplied / 1e12, 2),
        "memory_gb_s": round(2 * copy_bytes / copied / 1e9, 1),
    }


def median_seconds(
    device: torch.device, work: Callable[[], object], warm_ups: int = 60, runs: int = 20
) -> float:
    """Return the median time of `work` on the device.

    + warm_ups: runs before: an idle GPU needs some tenths of a second to raise its clocks
    """
    took = []
    for _ in range(warm_ups + runs):
        synchronize(device)
        began = time.perf_counter()
        work()
        synchronize(device)
        took.append(time.perf_counter() - began)
    return statistics.median(took[warm_ups:])


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def covers(archs: list[str], capability: tuple[int, int]) -> str | None:
    """Return how torch's `archs` serve a GPU of `capability`: "binary", "ptx" (compiled when first
    used), or None.

    A binary for sm_86 runs on any 8.x with x >= 6; PTX for compute_80 on 8.0 and all later. With
    the suffix "a" either runs on exactly that GPU, with "f" on its family: the same major number
    and no smaller minor one (CUDA programming guide, "Compute Capabilities").
    """
    ways = set()
    for kind, major, minor, suffix in re.findall(r"(sm|compute)_(\d+)(\d)([af]?)", " ".join(archs)):
        built = int(major), int(minor)
        family = built[0] == capability[0] and built <= capability
        either = {"a": built == capability, "f": family}
        if either.get(suffix, family if kind == "sm" else built <= capability):
            ways.add("binary" if kind == "sm" else "ptx")
    return min(ways, default=None)


# -- judged


def cuda(mine: Fact, want: Want, _: Facts) -> str:
    """Judge whether torch's GPU n is nvidia-smi's, and whether torch has code for it."""
    cuda, device, index = mine["cuda"], mine["device"], mine["identity"]["rank"]
    host = tested(want).get(index, {})
    if cuda["devices"] < want.gpus:
        built = f"torch, built for CUDA {cuda['built_for']},"
        fail(f"{built} sees {cuda['devices']} GPUs, {want.gpus} are declared")
    # Of a GPU that is divided torch names the part that it may use, nvidia-smi the whole.
    if host.get("mig.mode.current") != "Enabled" and host.get("uuid") != device["uuid"]:
        fail(f"torch sees {device['uuid']} there, nvidia-smi {host.get('uuid')}")
    major, minor = device["capability"]
    name, listed = f"sm_{major}{minor}", " ".join(cuda["archs"])
    way = covers(cuda["archs"], (major, minor))
    if way is None:
        fail(f"torch has no kernels for it ({name} or one that runs there): {listed}")
    if way == "ptx":
        warn(f"torch has only PTX for it, compiled at first use: {listed}")
    return f"CUDA {cuda['built_for']}, {name}"


def memories(mine: Fact, _: Want, __: Facts) -> str:
    """Judge what was read back from memory."""
    words, wrong = mine["memory"]["words"], mine["memory"]["wrong"]
    if wrong or not words:
        fail(f"{wrong} of {words} words of 8 bytes read back wrong")
    return f"{words // 2**17} MiB, {len(_MULTIPLIERS)} passes"


def speeds(mine: Fact, want: Want, facts: Facts) -> str:
    """Judge the speeds by what a GPU of this kind shows; of an unknown kind, they are shown."""
    kind, slow = kind_of(mine["device"]["name"], want.kinds), []
    for key in [each for each in _UNITS if each in kind]:
        reached, share = mine["speed"][key], mine["speed"][key] / kind[key]
        shown = f"{reached:.0f} {_UNITS[key]}, {share:.0%} of {kind[key]:g} ({kind['source']})"
        if share < kind["fail"]:
            fail(shown)
        slow += [shown] if share < kind["warn"] else []
    own, *all_ranks = (each["speed"]["bf16_tflops"] for each in (mine, *facts.values()))
    if own < _APART * max(all_ranks):
        slow.append(f"{own:.0f} bf16 TFLOP/s, another {max(all_ranks):.0f}")
    if slow:
        warn("; ".join(slow))
    each = (fact["speed"] for fact in facts.values())
    return ", ".join(f"{x['bf16_tflops']:.0f} TFLOP/s, {x['memory_gb_s']:.0f} GB/s" for x in each)
