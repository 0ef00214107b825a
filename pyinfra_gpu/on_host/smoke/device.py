"""S1 on GPU hosts: what one GPU does alone, its identity, its arithmetic, its memory, its speed.

What is measured takes the device, so that the CPU can stand in for a GPU in tests.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .check import Facts, Want, fail, warn
from .gpus import kind_of
from .lazy import torch

if TYPE_CHECKING:
    from .worker import Rank

_MEMORY_BYTES = 2**30
_BLOCK_BYTES = 2**26
_MULTIPLIERS = (0x9E3779B97F4A7C15 - 2**64, 0x6A09E667F3BCC909)
"""Odd, so each word's value is its own; about half of all bits set, and other bits each pass."""
MATMUL_BOUNDS = {"float32": 2.0**-20, "bfloat16": 2.0**-8}
"""On |error| / (|A| |B|) for sums of 512 products. Single precision shows some 1e-7 and TF32 in
its place 1e-4; bfloat16's result is rounded to 2^-9, and twice that covers a split sum."""
_UNITS = {"bf16_tflops": "bf16 TFLOP/s", "memory_gb_s": "GB/s of memory"}
_APART = 0.85
"""Equal GPUs differ by less, in silicon and cooling; the slowest sets everyone's pace."""


def measure(it: Rank) -> None:
    """Record the facts of a rank's own GPU: cuda, device, matmul, memory, speed.

    Raises torch's own error where the GPU cannot even be used; the steps before it are recorded.
    """
    measuring, device, cuda = it.journal.measuring, it.device, torch.cuda
    with measuring("cuda") as value:
        nccl: Any = cuda.nccl
        value["torch_cuda"], value["arch_list"] = torch.version.cuda, cuda.get_arch_list()
        value["nccl"] = (
            ".".join(map(str, nccl.version())) if hasattr(torch._C, "_nccl_version") else None
        )
        value["devices"] = cuda.device_count() if cuda.is_available() else 0
    with measuring("device") as value:
        cuda.set_device(device)
        value.update(identity(device.index))
    with measuring("matmul") as value:
        value.update({kind: matmul(device, kind) for kind in MATMUL_BOUNDS})
    with measuring("memory") as value:
        value.update(memory(device, _MEMORY_BYTES))
    with measuring("speed") as value:
        value.update(speed(device, 8192, 2**30))
    cuda.empty_cache()  # what comes next needs some of it outside of torch


def identity(index: int) -> dict[str, Any]:
    """Return how torch sees the GPU `index`, its `uuid` in nvidia-smi's form."""
    properties = torch.cuda.get_device_properties(index)
    uuid = str(properties.uuid)
    return {
        "uuid": uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}",
        "name": properties.name,
        "capability": [properties.major, properties.minor],
    }


def matmul(device: torch.device, kind: str, size: int = 512) -> dict[str, Any]:
    """Return the largest error of one product against the CPU's in double precision.

    `ratio` is |error| / (|A| |B|), element by element: the measure in which rounding errors are
    bounded, whatever cancels in the sum. TF32 in place of fp32 shows as a ratio near 1e-4.
    """
    torch.set_float32_matmul_precision("highest")
    generator = torch.Generator().manual_seed(4711)
    left, right = (
        torch.randn(size, size, generator=generator).to(getattr(torch, kind)) for _ in range(2)
    )
    product = left.to(device) @ right.to(device)
    return deviation(product, left.double(), right.double())


def deviation(product: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> dict[str, Any]:
    """Return how far a product is from that of `left` and `right`, in double precision on the CPU:
    the largest |error| / (|left| |right|), and how many elements are infinite or undefined.
    """
    product = product.cpu().double()
    error = (product - left @ right).abs() / (left.abs() @ right.abs())
    return {"non_finite": int((~torch.isfinite(product)).sum()), "ratio": float(error.max())}


def memory(device: torch.device, size: int) -> dict[str, Any]:
    """Write `size` bytes of which every word has its own value, then read all of them back.

    Twice, with other values. All is written before anything is read, so a word that aliases
    another (a broken address line) is seen too; `wrong` counts words of 8 bytes.
    """
    words = size // 8
    buffer = torch.empty(words, dtype=torch.int64, device=device)
    block = min(words, _BLOCK_BYTES // 8)
    found: dict[str, Any] = {"words": words, "wrong": 0, "first": None}

    def values(multiplier: int) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        for start in range(0, words, block):
            here = buffer[start : start + block]
            numbers = torch.arange(start + 1, start + 1 + here.numel(), device=device)
            yield start, here, numbers * multiplier  # wraps around, as integers of 64 bits do

    for multiplier in _MULTIPLIERS:
        for _, here, wanted in values(multiplier):
            here.copy_(wanted)
        for start, here, wanted in values(multiplier):
            differ = (here != wanted).nonzero().flatten()
            found["wrong"] += len(differ)
            if len(differ) and found["first"] is None:
                place = int(differ[0])
                found["first"] = [start + place, int(here[place]), int(wanted[place])]
    return found


def speed(device: torch.device, size: int, copy_bytes: int) -> dict[str, Any]:
    """Return bf16 TFLOP/s of a `size` cubed product, and GB/s of a copy (read plus written)."""
    left, right = (torch.randn(size, size, dtype=torch.bfloat16, device=device) for _ in range(2))
    product = median_seconds(device, lambda: left @ right)
    source = torch.ones(copy_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy = median_seconds(device, lambda: target.copy_(source))
    return {
        "bf16_tflops": round(2 * size**3 / product / 1e12, 2),
        "memory_gb_s": round(2 * copy_bytes / copy / 1e9, 1),
    }


def median_seconds(
    device: torch.device, work: Callable[[], object], warm_ups: int = 60, runs: int = 20
) -> float:
    """Return the median time of `work` on the device, by its own clock where it has one.

    + warm_ups: runs before: an idle GPU needs some tenths of a second to raise its clocks
    """
    for _ in range(warm_ups):
        work()
    took: list[float] = []
    for _ in range(runs):
        synchronize(device)
        if device.type == "cuda":
            event: Any = torch.cuda.Event
            start, end = (event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            end.synchronize()
            took.append(start.elapsed_time(end) / 1000)
        else:
            began = time.perf_counter()
            work()
            took.append(time.perf_counter() - began)
    return statistics.median(took)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def covers(arch_list: list[str], capability: tuple[int, int]) -> str | None:
    """Return how `arch_list` serves a GPU of `capability`: "binary", "ptx" (compiled when first
    used), or None.

    A binary for sm_86 runs on any 8.x with x >= 6; PTX for compute_80 on 8.0 and all later. With
    the suffix "a" either runs on exactly that GPU, with "f" on its family: the same major number
    and no smaller minor one (CUDA programming guide, "Compute Capabilities").
    """
    ways = set()
    for kind, major, minor, suffix in re.findall(
        r"(sm|compute)_(\d+)(\d)([af]?)", " ".join(arch_list)
    ):
        built = int(major), int(minor)
        family = built[0] == capability[0] and built <= capability
        either = {"a": built == capability, "f": family}
        if either.get(suffix, family if kind == "sm" else built <= capability):
            ways.add("binary" if kind == "sm" else "ptx")
    return min(ways, default=None)


# -- judged


def cuda(facts: Facts, want: Want) -> str:
    """Judge whether torch's GPU n is nvidia-smi's, and what a GPU of its kind must be."""
    hosts = {gpu["index"]: gpu for gpu in want.gpu_host.get("gpus", [])}
    for index, fact in facts.items():
        cuda, device, host = fact["cuda"], fact["device"], hosts.get(index, {})
        if cuda["torch_cuda"] is None:
            fail("this torch is built for the CPU: install one built for CUDA", index)
        if cuda["devices"] < want.gpus:
            fail(f"torch sees {cuda['devices']} GPUs, {want.gpus} are declared", index)
        if not cuda["nccl"]:
            fail("this torch has no NCCL", index)
        if host.get("mig") == "Enabled":
            continue  # torch names the part it may use, nvidia-smi the whole
        if host.get("uuid") != device["uuid"]:
            fail(f"torch's GPU {index} is {device['uuid']}, nvidia-smi's {host.get('uuid')}", index)
        kind = kind_of(device["name"], want.kinds)
        if kind and [*device["capability"]] != [*kind["capability"]]:
            fail(f"{device['name']} reports capability {device['capability']}", index)
    if len({fact["device"]["uuid"] for fact in facts.values()}) < len(facts):
        fail("two ranks share a GPU")
    if len({fact["cuda"]["nccl"] for fact in facts.values()}) > 1:
        fail("the ranks have different versions of NCCL")
    return f"CUDA {cuda['torch_cuda']}, NCCL {cuda['nccl']}"


def arch(facts: Facts, _: Want) -> str:
    """Judge whether torch has code for each GPU."""
    for index, fact in facts.items():
        archs, (major, minor) = fact["cuda"]["arch_list"], fact["device"]["capability"]
        name, listed = f"sm_{major}{minor}", " ".join(archs)
        way = covers(archs, (major, minor))
        if way is None:
            wanted = f"{name} or one that runs there"
            fail(f"torch has no kernels for GPU {index} ({wanted}): {listed}", index)
        if way == "ptx":
            warn(f"torch has only PTX for GPU {index}, compiled at first use: {listed}", index)
    return name


def matmuls(facts: Facts, _: Want) -> str:
    """Judge the matrix products."""
    for kind, bound in MATMUL_BOUNDS.items():
        for index, fact in facts.items():
            result = fact["matmul"][kind]
            if result["non_finite"] or not result["ratio"] <= bound:
                what = f"error {result['ratio']:.2g}, bound {bound:.2g}"
                if result["non_finite"]:
                    what = f"{result['non_finite']} elements infinite or undefined"
                fail(f"GPU {index} multiplies wrongly in {kind}: {what}", index)
    return f"{' and '.join(MATMUL_BOUNDS)} as in double precision"


def memories(facts: Facts, _: Want) -> str:
    """Judge what was read back from memory."""
    for index, fact in facts.items():
        result = fact["memory"]
        if result["wrong"] or not result["words"]:
            place, found, wanted = result["first"] or (0, 0, 0)
            counted = f"{result['wrong']} of {result['words']} words read back wrong"
            first = f"the first is {place}: {found:#x} in place of {wanted:#x}"
            fail(f"GPU {index}: {counted}, {first}", index)
    return f"{result['words'] // 2**17} MiB, {len(_MULTIPLIERS)} passes"


def speeds(facts: Facts, want: Want) -> str:
    """Judge the speeds by what a GPU of this kind shows; of an unknown kind, they are shown."""
    slow = None
    for index, fact in facts.items():
        kind = kind_of(fact["device"]["name"], want.kinds) or {}
        for key in [each for each in _UNITS if each in kind]:
            reached, share = fact["speed"][key], fact["speed"][key] / kind[key]
            shown = f"GPU {index} reaches {reached:.0f} {_UNITS[key]}, {share:.0%} of {kind[key]:g}"
            if share < kind["fail"]:
                fail(f"{shown} ({kind['source']})", index)
            if share < kind["warn"]:
                slow = slow or (f"{shown} ({kind['source']})", index)
    if slow:
        warn(*slow)
    speeds = {index: fact["speed"]["bf16_tflops"] for index, fact in facts.items()}
    slowest, fastest = min(speeds, key=lambda index: speeds[index]), max(speeds.values())
    if speeds[slowest] < _APART * fastest:
        shown = f"GPU {slowest} reaches {speeds[slowest]:.0f} bf16 TFLOP/s"
        warn(f"{shown}, another {fastest:.0f}", slowest)
    return ", ".join(f"{each:.0f} TFLOP/s" for each in speeds.values())
