"""Which number formats a GPU really computes with: products of matrices against double precision.

A capability number is no evidence: kernels for a format may be missing in a library that says it
supports the GPU. The inputs are made in the format itself, as random codes with random scales, so
that their exact values are known; what comes out can differ from the product in double precision
only by the hardware's own rounding.

What training needs (fp32, bf16) is tried in S1. The precision ladder is tried when all else is
over, in a run of ranks of its own, since an error of CUDA spoils what its process does afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .check import Fact, Facts, Want, fail, warn
from .rank import Rank, torch


@dataclass(frozen=True)
class Format:
    """How numbers are stored in a format, and who has it.

    + kind: torch's name of the elements; scale: of the scales, "" where there are none
    + bound: on |error| / (|A| |B|), by which rounding is bounded whatever cancels in the sum
    + block: elements that share a scale, 0: all of them
    + since: the first compute capability with tensor cores for it (CUDA programming guide)
    """

    kind: str
    bound: float
    since: tuple[int, int] = (0, 0)
    scale: str = ""
    block: int = 0


PLAIN: Mapping[str, Format] = {
    # some 1e-7, and TF32 in its place 1e-4
    "fp32": Format("float32", 2.0**-20),
    # the result is rounded to 2^-9, and twice that covers a split sum
    "bf16": Format("bfloat16", 2.0**-8),
}
LADDER: Mapping[str, Format] = {
    # tensor cores for 8-bit floats add up with some 13 bits; a wrong scale is off by tens of %
    "fp8": Format("float8_e4m3fn", 2.0**-7, (8, 9), "float32"),
    "mxfp8": Format("float8_e4m3fn", 2.0**-7, (10, 0), "float8_e8m0fnu", 32),
    "nvfp4": Format("float4_e2m1fn_x2", 2.0**-7, (10, 0), "float8_e4m3fn", 16),
}
"""Each needs a newer GPU than the one before."""
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5)
"""What the codes of a 4-bit float mean, but for four large negative ones (OCP MX, 5.3.3)."""
_ROWS, _COLUMNS, _DEPTH = 384, 256, 512
"""Three different sizes, so that nothing transposed by mistake can fit."""


def measure(it: Rank) -> None:
    """Record the fact `precision`, and a fact for each format of the ladder."""
    torch.cuda.set_device(it.device)
    it.journal.fact("precision", [*torch.cuda.get_device_capability(it.device)])
    for name, wanted in LADDER.items():
        with it.journal.measuring(name) as value:
            try:
                value.update(product(it.device, wanted))
            except Exception as error:  # this torch or this GPU has not got it, or it is broken
                text = f"{type(error).__name__}: {error}"
                value["error"] = text.partition("\n")[0][:300]


def product(device: torch.device, wanted: Format) -> dict[str, Any]:
    """Return by how much a product in this format is wrong: the largest |error| / (|A| |B|), and
    how many elements are infinite or undefined. Raises torch's own error where it is refused.
    """
    torch.set_float32_matmul_precision("highest")
    generator = torch.Generator().manual_seed(4711)
    left, scale_left, a = _operand(wanted, generator, _ROWS)
    right, scale_right, b = _operand(wanted, generator, _COLUMNS)
    how = scale_left.to(device), scale_right.to(device)
    left, right = _on(device, left), _on(device, right).t()
    if wanted.scale:  # torch tells the formats apart by the types and sizes of the scales
        found = torch._scaled_mm(left, right, *how, out_dtype=torch.bfloat16)
    else:
        found = left @ right
    found, b = found.cpu().double(), b.t()
    error = (found - a @ b).abs() / (a.abs() @ b.abs())
    return {"non_finite": int((~torch.isfinite(found)).sum()), "ratio": float(error.max())}


def _on(device: torch.device, data: torch.Tensor) -> torch.Tensor:
    if data.element_size() > 1:
        return data.to(device)
    # copied as bytes: not every torch can copy 4-bit floats from one device to another
    return data.view(torch.uint8).to(device).view(data.dtype)


def _operand(wanted: Format, generator: Any, rows: int) -> tuple[Any, Any, Any]:
    """Return a random matrix of rows x depth as the operation takes it, its scales, and its exact
    values. With scales they are mostly positive: little cancels, so a wrong block shows.
    """
    kind = getattr(torch, wanted.kind)
    if wanted.kind == "float4_e2m1fn_x2":  # two a byte, the first in the low half
        codes = torch.randint(12, (rows, _DEPTH), generator=generator, dtype=torch.uint8)
        values = torch.tensor(_E2M1, dtype=torch.float64)[codes.long()]
        data = (codes[:, 0::2] | (codes[:, 1::2] << 4)).contiguous().view(kind)
    else:
        data = (torch.randn(rows, _DEPTH, generator=generator) + bool(wanted.scale)).to(kind)
        values = data.double()
    if not wanted.block:
        scale = torch.tensor(0.5 if wanted.scale else 1.0)
        return data, scale, values * scale.double()
    shape = (rows, _DEPTH // wanted.block)
    scale = torch.rand(shape, generator=generator) + 0.5
    if wanted.scale == "float8_e8m0fnu":  # it holds powers of two alone
        scale = 2.0 ** torch.randint(-2, 3, shape, generator=generator)
    scale = scale.to(getattr(torch, wanted.scale))
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


# -- judged


def right(found: Mapping[str, Any], wanted: Format) -> bool:
    """Return whether a product is as exact as its format allows."""
    return not found["non_finite"] and found["ratio"] <= wanted.bound


def matmuls(mine: Fact, _: Want, __: Facts) -> str:
    """Judge the products that training needs."""
    for name, wanted in PLAIN.items():
        found = mine["matmul"][name]
        if not right(found, wanted):
            what = f"{found['non_finite']} elements infinite or undefined, "
            bound = f"error {found['ratio']:.2g}, bound {wanted.bound:.2g}"
            fail(f"it multiplies wrongly in {name}: {what}{bound}")
    return f"{' and '.join(PLAIN)} as in double precision"


def ladder(mine: Fact, _: Want, __: Facts) -> str:
    """Judge the other formats: none may compute wrongly, and one that fails is to be avoided.

    Only a GPU that is known not to have a format is expected to refuse it.
    """
    ranks, why = mine["precision"]["formats"], mine["precision"]["why"]
    states, failed, best = [], [], "bf16"
    for name, wanted in LADDER.items():
        outcomes = [facts.get(name, {"error": why}) for facts in ranks]
        errors = [each["error"] for each in outcomes if "error" in each]
        if any(not right(each, wanted) for each in outcomes if "error" not in each):
            fail(f"{name} computes wrong numbers")
        lacks = all(tuple(facts.get("precision", (99, 0))) < wanted.since for facts in ranks)
        if errors and not lacks:
            failed.append(f"{name} failed: {errors[0]}")
        states.append(f"{name} {'unsupported' if errors else 'native'}")
        best = best if errors else name
    if failed:
        warn(f"{failed[0]}; use {best}")
    return f"{', '.join(states)}; best {best}"
