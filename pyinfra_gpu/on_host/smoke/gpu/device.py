"""What one GPU does alone: its identity, its arithmetic, its memory, its speed.

Every function takes `torch` and the device, so that the CPU can stand in for a GPU in tests.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..journal import Writer

if TYPE_CHECKING:
    import torch as torch_types

_MATMUL_SIZE = 512
_MEMORY_BYTES = 2**30
_BLOCK_BYTES = 2**26
_SPEED_SIZE = 8192
_COPY_BYTES = 2**30
_SPEED_RUNS = 10
_WARM_SECONDS = 0.3
"""An idle GPU needs some tenths of a second to raise its clocks."""
_MULTIPLIERS = (0x9E3779B97F4A7C15 - 2**64, 0x6A09E667F3BCC909)
"""Odd, so each word's value is its own; about half of all bits set, and other bits each pass."""


def measure(torch: ModuleType, index: int, journal: Writer) -> None:
    """Record the facts of the GPU `index`: cuda, device, matmul_*, memory, speed.

    Raises torch's own error where the GPU cannot even be used; the steps before it are recorded.
    """
    with journal.measuring("cuda") as value:
        value.update(software(torch))
    device = torch.device("cuda", index)
    with journal.measuring("device") as value:
        torch.cuda.set_device(device)
        value.update(identity(torch, index))
    for kind in ("float32", "bfloat16"):
        with journal.measuring(f"matmul_{kind}") as value:
            value.update(matmul(torch, device, kind))
    with journal.measuring("memory") as value:
        value.update(memory(torch, device, _MEMORY_BYTES))
    with journal.measuring("speed") as value:
        value.update(speed(torch, device, _SPEED_SIZE, _COPY_BYTES))


def software(torch: ModuleType) -> dict[str, Any]:
    """Return what this torch was built for and which CUDA libraries it brings."""
    built = torch.version.cuda is not None
    return {
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "arch_list": torch.cuda.get_arch_list(),
        "nccl": nccl_version(torch),
        "cudnn": torch.backends.cudnn.version() if built else None,
        "available": torch.cuda.is_available(),
        "devices": torch.cuda.device_count(),
    }


def nccl_version(torch: ModuleType) -> list[int] | None:
    """Return the version of the NCCL that is loaded, None for a torch without NCCL."""
    if not hasattr(torch._C, "_nccl_version"):
        return None
    return [part for part in torch.cuda.nccl.version() if isinstance(part, int)]


def identity(torch: ModuleType, index: int) -> dict[str, Any]:
    """Return how torch sees the GPU `index`; `uuid` in nvidia-smi's form, None where torch has
    none (before 2.6)."""
    properties = torch.cuda.get_device_properties(index)
    uuid = getattr(properties, "uuid", None)
    return {
        "index": index,
        "uuid": None if uuid is None else _with_prefix(str(uuid)),
        "name": properties.name,
        "capability": [properties.major, properties.minor],
        "memory_mib": properties.total_memory // 2**20,
        "multiprocessors": properties.multi_processor_count,
    }


def _with_prefix(uuid: str) -> str:
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def matmul(
    torch: ModuleType, device: torch_types.device, kind: str, size: int = _MATMUL_SIZE
) -> dict[str, Any]:
    """Return the largest error of one product against the CPU's in double precision.

    `ratio` is |error| / (|A| |B|), element by element: the measure in which rounding errors are
    bounded, whatever cancels in the sum. TF32 in place of fp32 shows as a ratio near 1e-4.
    """
    torch.set_float32_matmul_precision("highest")
    generator = torch.Generator().manual_seed(4711)
    left, right = (
        torch.randn(size, size, generator=generator).to(getattr(torch, kind)) for _ in range(2)
    )
    product = (left.to(device) @ right.to(device)).cpu().double()
    left, right = left.double(), right.double()
    error = (product - left @ right).abs() / (left.abs() @ right.abs())
    return {
        "size": size,
        "elements": error.numel(),
        "non_finite": int((~torch.isfinite(product)).sum()),
        "ratio": float(error.max()),
    }


def memory(torch: ModuleType, device: torch_types.device, size: int) -> dict[str, Any]:
    """Write `size` bytes of which every word has its own value, then read all of them back.

    Twice, with other values. All is written before anything is read, so a word that aliases
    another (a broken address line) is seen too; `wrong` counts words of 8 bytes.
    """
    words = size // 8
    buffer = torch.empty(words, dtype=torch.int64, device=device)
    block = min(words, _BLOCK_BYTES // 8)
    wrong, first = 0, None
    for multiplier in _MULTIPLIERS:
        for start in range(0, words, block):
            end = min(start + block, words)
            buffer[start:end] = _values(torch, device, start, end, multiplier)
        for start in range(0, words, block):
            end = min(start + block, words)
            expected = _values(torch, device, start, end, multiplier)
            differ = buffer[start:end] != expected
            count = int(differ.sum())
            if count and first is None:
                place = int(differ.nonzero()[0])
                first = [start + place, int(buffer[start + place]), int(expected[place])]
            wrong += count
    passes = len(_MULTIPLIERS)
    return {"bytes": size, "words": words, "passes": passes, "wrong": wrong, "first": first}


def _values(
    torch: ModuleType, device: torch_types.device, start: int, end: int, multiplier: int
) -> torch_types.Tensor:
    numbers: torch_types.Tensor = torch.arange(start + 1, end + 1, device=device)
    return numbers * multiplier  # wraps around, as whole numbers of 64 bits do


def speed(
    torch: ModuleType, device: torch_types.device, size: int, copy_bytes: int
) -> dict[str, Any]:
    """Return bf16 TFLOP/s of a `size` cubed product, and GB/s of a copy (read plus written)."""
    left, right = (torch.randn(size, size, dtype=torch.bfloat16, device=device) for _ in range(2))
    product = _median_seconds(torch, device, lambda: left @ right)
    source = torch.ones(copy_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy = _median_seconds(torch, device, lambda: target.copy_(source))
    return {
        "matmul_size": size,
        "bf16_tflops": round(2 * size**3 / product / 1e12, 2),
        "copy_bytes": copy_bytes,
        "memory_gb_s": round(2 * copy_bytes / copy / 1e9, 1),
    }


def _median_seconds(
    torch: ModuleType, device: torch_types.device, work: Callable[[], object]
) -> float:
    """Return the median time of `work`, after it has kept the device busy for a while."""
    warm = time.monotonic() + _WARM_SECONDS
    while time.monotonic() < warm:
        work()
        synchronize(torch, device)
    return statistics.median(seconds(torch, device, work) for _ in range(_SPEED_RUNS))


def seconds(torch: ModuleType, device: torch_types.device, work: Callable[[], object]) -> float:
    """Return how long `work` takes on the device, by its own clock where it has one."""
    if device.type != "cuda":
        began = time.perf_counter()
        work()
        return time.perf_counter() - began
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    milliseconds: float = start.elapsed_time(end)
    return milliseconds / 1000


def synchronize(torch: ModuleType, device: torch_types.device) -> None:
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
    best = None
    for name in arch_list:
        kind, _, rest = name.partition("_")
        digits, suffix = rest.rstrip("af"), rest[len(rest.rstrip("af")) :]
        if not digits.isdigit() or len(digits) < 2:
            continue
        built = int(digits[:-1]), int(digits[-1])
        same_major = built[0] == capability[0] and built[1] <= capability[1]
        exact = built == capability
        if kind == "sm" and (exact if suffix == "a" else same_major):
            return "binary"
        if kind == "compute" and _ptx_runs(built, suffix, capability):
            best = "ptx"
    return best


def _ptx_runs(built: tuple[int, int], suffix: str, capability: tuple[int, int]) -> bool:
    if suffix == "a":
        return built == capability
    if suffix == "f":
        return built[0] == capability[0] and built[1] <= capability[1]
    return built <= capability
