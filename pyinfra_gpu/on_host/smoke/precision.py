"""S4 on GPUs, the precision ladder: which number formats this GPU really computes with.

A capability number is no evidence: kernels for a format may be missing in a library that says it
supports the GPU. Each format is tried with a real product, in a process of its own, since an error
of CUDA spoils everything its process does afterwards. The inputs are made in the format itself, as
random codes with random scales, so that their exact values are known; what comes out can differ
from the product in double precision only by the hardware's own rounding.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import nvidia_smi
from .check import Fact, Facts, Want, fail, warn
from .device import deviation
from .lazy import torch
from .ranks import die_with_parent

NATIVE, UNSUPPORTED, FAILED = "native", "unsupported (expected)", "failed"
WRONG, NOT_RUN = "wrong", "not run"
TOLERANCE = 2.0**-7
"""On |error| / (|A| |B|): a result in bf16 is rounded to 2^-9, and tensor cores for 8-bit floats
add up with some 13 bits; a wrong scale or a wrong block is off by tens of per cent."""


@dataclass(frozen=True)
class Format:
    """How numbers are stored in a format, and who has it.

    + kind: torch's name of the elements; scale: of the scales, "" where there are none
    + block: elements that share a scale, 0: all of them
    + since: the first compute capability with tensor cores for it (CUDA programming guide)
    + only: torch runs it on this major capability alone (ScaledBlas.cpp, since 2.10)
    """

    kind: str
    since: tuple[int, int]
    scale: str = ""
    block: int = 0
    only: int | None = None


FORMATS: Mapping[str, Format] = {
    "bf16": Format("bfloat16", (8, 0)),
    "fp8": Format("float8_e4m3fn", (8, 9), "float32"),
    "mxfp8": Format("float8_e4m3fn", (10, 0), "float8_e8m0fnu", 32),
    "nvfp4": Format("float4_e2m1fn_x2", (10, 0), "float8_e4m3fn", 16),
    "mxfp4": Format("float4_e2m1fn_x2", (10, 0), "float8_e8m0fnu", 32, only=10),
}
"""In the order of the ladder: each needs a newer GPU than the one before."""
_NO_KERNEL = (
    r"no kernel image|CUBLAS_STATUS_(?:NOT_SUPPORTED|ARCH_MISMATCH)|operation not supported"
)
_FAULT = re.compile(rf"CUDA error: (?!{_NO_KERNEL})|illegal memory access|launch failure")
"""What is wrong on any GPU, also on one that is known not to have the format; that a library has no
kernel for this one is none of it."""
_MARK = "precision: "
_EACH_S = 20.0
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""What the codes 0 to 7 of a 4-bit float mean; 8 to 15 are the same, negative (OCP MX, 5.3.3)."""
_ROWS, _COLUMNS, _DEPTH = 384, 256, 512
"""Three different sizes, so that nothing transposed by mistake can fit."""


class MissingError(Exception):
    """This torch has no such format or operation."""


def main(name: str) -> int:
    """Try format `name` on the first GPU; print the outcome as one line; for the child."""
    die_with_parent()
    device = torch.device("cuda", 0)
    outcome: dict[str, Any] = {}
    try:
        outcome["capability"] = list(torch.cuda.get_device_capability(device))
        torch.cuda.set_device(device)
        outcome |= probe(device, name)
    except MissingError as error:
        outcome["missing"] = str(error)
    except Exception as error:
        outcome["error"] = f"{type(error).__name__}: {error}"[:1000]
    print(_MARK + json.dumps(outcome), flush=True)
    return 0


def ladder(command: Sequence[str], environment: Mapping[str, str], limit: float) -> dict[str, Any]:
    """Return the fact `precision`: each format's status, and the best one that works.

    + command: starts this program; limit: seconds for all; what is not reached is "not run"
    """
    until = time.monotonic() + limit
    formats: dict[str, dict[str, str]] = {}
    capability: list[int] | None = None
    for name in FORMATS:
        left = min(_EACH_S, until - time.monotonic())
        if left <= 0:
            formats[name] = {"status": NOT_RUN, "reason": "no time was left"}
            continue
        found = _attempt([*command, "--precision", name], environment, left)
        capability = found.get("capability") or capability
        formats[name] = judged(name, found, capability)
    native = [name for name in FORMATS if formats[name]["status"] == NATIVE]
    return {"formats": formats, "best": native[-1] if native else None}


def _attempt(
    command: Sequence[str], environment: Mapping[str, str], limit: float
) -> dict[str, Any]:
    """Run one child; return what it printed, or under "crash" how it ended without a word."""
    answer = nvidia_smi.run(command, limit, environment)
    lines = [line.strip() for line in answer.text.splitlines()]
    for line in reversed(lines):
        if line.startswith(_MARK):
            found: dict[str, Any] = json.loads(line.removeprefix(_MARK))
            return found
    last = " | ".join(filter(None, lines[-5:])) or "without a word"
    return {"crash": last if answer.code is None else f"ended with {answer.code}: {last}"}


def judged(
    name: str, outcome: Mapping[str, Any], capability: Sequence[int] | None
) -> dict[str, str]:
    """Return status and reason of one format.

    Wrong numbers are a failure even where the format is not expected to work: it was offered. An
    error is expected only where GPU or torch is known not to have the format; without the GPU's
    capability nothing is known, and nothing is excused.
    """
    wanted, error = FORMATS[name], str(outcome.get("error"))
    lacks = capability is not None and (
        tuple(capability) < wanted.since or wanted.only not in (None, capability[0])
    )
    status, reason = FAILED, outcome.get("crash", error.partition("\n")[0][:300])
    if "ratio" in outcome:
        right = not outcome["non_finite"] and outcome["ratio"] <= TOLERANCE
        status, reason = (NATIVE, "") if right else (WRONG, "wrong numbers")
    elif "missing" in outcome:
        status, reason = UNSUPPORTED, outcome["missing"]
    elif lacks and "error" in outcome and not _FAULT.search(error):
        status = UNSUPPORTED
    return {"status": status, "reason": reason}


def formats(mine: Fact, _: Want, __: Facts) -> str:
    """Judge the formats: bf16 must work, nothing may compute wrongly; other failures only warn."""
    found, best = mine["precision"]["formats"], mine["precision"]["best"]
    for name, entry in found.items():
        if entry["status"] == WRONG or (name == "bf16" and entry["status"] != NATIVE):
            fail(f"{name} {entry['status']}: {entry['reason']}")
    for name, entry in found.items():
        if entry["status"] in (FAILED, NOT_RUN):
            warn(f"{name} {entry['status']}: {entry['reason']}; use {best}")
    short = (f"{name} {each['status'].split()[0]}" for name, each in found.items())
    return f"{', '.join(short)}; best {best}"


# -- one product


def probe(device: torch.device, name: str) -> dict[str, Any]:
    """Return the largest error of one product in format `name`, as `device.deviation` does.

    Raises MissingError where torch has not got it, torch's own error where the GPU refuses it.
    """
    generator, wanted = torch.Generator().manual_seed(4711), FORMATS[name]
    left, scale_left, exact_left = _operand(wanted, generator, _ROWS)
    right, scale_right, exact_right = _operand(wanted, generator, _COLUMNS)
    a, b = _on(device, left), _on(device, right).t()
    functional: Any = torch.nn.functional
    if not wanted.scale:
        product = a @ b
    elif name == "mxfp4":  # it has to be asked for by name: torch does not know it by its scales
        recipe = _has(functional, "ScalingType").BlockWise1x32
        order = functional.SwizzleType.SWIZZLE_32_4_4
        scales = (scale_left.to(device), recipe, scale_right.to(device), recipe)
        product = functional.scaled_mm(a, b, *scales, order, order, output_dtype=torch.bfloat16)
    else:  # torch tells tensor-wise fp8, MXFP8 and NVFP4 apart by the types and sizes of the scales
        how = (scale_left.to(device), scale_right.to(device))
        product = torch._scaled_mm(a, b, *how, out_dtype=torch.bfloat16)
    return deviation(product, exact_left, exact_right.t())


def _on(device: torch.device, data: torch.Tensor) -> torch.Tensor:
    if data.element_size() > 1:
        return data.to(device)
    # copied as bytes: not every torch can copy 4-bit floats from one device to another
    return data.view(torch.uint8).to(device).view(data.dtype)


def _has(module: Any, name: str) -> Any:
    if not hasattr(module, name):
        raise MissingError(f"torch {torch.__version__} has no {name}")
    return getattr(module, name)


def _operand(wanted: Format, generator: Any, rows: int) -> tuple[Any, Any, Any]:
    """Return a random matrix of rows x depth as the operation takes it, its scales, and its exact
    values. They are mostly positive: little cancels, and a wrong block changes the sum by much.
    """
    kind = _has(torch, wanted.kind)
    if wanted.kind == "float4_e2m1fn_x2":  # two a byte, the first in the low half
        codes = torch.randint(8, (rows, _DEPTH), generator=generator, dtype=torch.uint8)
        negative = torch.rand(rows, _DEPTH, generator=generator) < 0.25
        values = torch.tensor(E2M1, dtype=torch.float64)[codes.long()]
        values = torch.where(negative, -values, values)
        codes = codes | (negative.to(torch.uint8) << 3)
        data = (codes[:, 0::2] | (codes[:, 1::2] << 4)).contiguous().view(kind)
    else:
        data = (torch.randn(rows, _DEPTH, generator=generator) + 1).to(kind)
        values = data.double()
    if not wanted.block:
        scale = torch.tensor(0.5 if wanted.scale else 1.0)
        return data, scale, values * scale.double()
    shape = (rows, _DEPTH // wanted.block)
    scale = torch.rand(shape, generator=generator) + 0.5
    if wanted.scale == "float8_e8m0fnu":  # it holds powers of two alone
        scale = 2.0 ** torch.randint(-2, 3, shape, generator=generator)
    scale = scale.to(_has(torch, wanted.scale))
    exact = values * scale.float().double().repeat_interleave(wanted.block, dim=1)
    return data, swizzled(scale), exact


def swizzled(scale: torch.Tensor) -> torch.Tensor:
    """Return `scale` (rows x columns, multiples of 128 and 4) in the order tensor cores read it.

    In tiles of 128 x 4, row by row; in a tile, the scale of row r and column c is at
    (r mod 32) * 16 + (r div 32) * 4 + c (cuBLAS, "1D block scaling factors layout").
    """
    rows, columns = scale.shape
    tiles = scale.view(torch.uint8).view(rows // 128, 4, 32, columns // 4, 4)
    order = tiles.permute(0, 3, 2, 1, 4).contiguous()
    flat: torch.Tensor = order.flatten().view(scale.dtype)
    return flat
