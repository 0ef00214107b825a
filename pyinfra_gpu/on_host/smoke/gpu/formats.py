"""One real matrix product in each number format, compared with exact arithmetic on its inputs.

The inputs are made in the format itself, as random codes with random scales, so that their exact
values are known and nothing is lost by rounding them first. What comes out can then differ from
the product in double precision only by the hardware's own rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import device as one_device

if TYPE_CHECKING:
    import torch as torch_types

FORMATS = ("bf16", "fp8", "mxfp8", "nvfp4", "mxfp4")
"""In the order of the ladder: each needs a newer GPU than the one before."""

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""What the codes 0 to 7 of a 4-bit float mean; 8 to 15 are the same, negative (OCP MX, 5.3.3)."""

_ROWS, _COLUMNS, _DEPTH = 384, 256, 512
"""Three different sizes, so that nothing transposed by mistake can fit."""
_SPEED_SIZE = 4096
_SPEED_RUNS = 10


class MissingError(Exception):
    """This torch has no such format or operation."""


@dataclass(frozen=True)
class Operand:
    """A matrix of rows x depth: as the operation takes it, and its exact values."""

    data: torch_types.Tensor
    scale: torch_types.Tensor | None
    exact: torch_types.Tensor


Make = Callable[[ModuleType, Any, int, int], Operand]


def probe(torch: ModuleType, device: torch_types.device, name: str) -> dict[str, Any]:
    """Return the largest error of one product in format `name`, and its speed.

    Raises MissingError where torch has not got it, torch's own error where the GPU refuses it.
    """
    generator = torch.Generator().manual_seed(4711)
    left = _MAKERS[name](torch, generator, _ROWS, _DEPTH)
    right = _MAKERS[name](torch, generator, _COLUMNS, _DEPTH)
    work = _operation(torch, device, name, left, right)
    product = work().cpu().double()
    bound = left.exact.abs() @ right.exact.abs().t()
    error = (product - left.exact @ right.exact.t()).abs() / bound
    return {
        "elements": error.numel(),
        "non_finite": int((~torch.isfinite(product)).sum()),
        "ratio": float(error.max()),
        "tflops": _speed(torch, device, name, generator),
    }


def _speed(
    torch: ModuleType, device: torch_types.device, name: str, generator: Any
) -> float | None:
    """Return TFLOP/s of a large product, None on the CPU, whose speed nobody asks for."""
    if device.type != "cuda":
        return None
    left = _MAKERS[name](torch, generator, _SPEED_SIZE, _SPEED_SIZE)
    work = _operation(torch, device, name, left, left)
    for _ in range(_SPEED_RUNS):
        work()
    seconds = min(one_device.seconds(torch, device, work) for _ in range(_SPEED_RUNS))
    return round(2 * _SPEED_SIZE**3 / seconds / 1e12, 1)


def _operation(
    torch: ModuleType, device: torch_types.device, name: str, left: Operand, right: Operand
) -> Callable[[], torch_types.Tensor]:
    """Return left @ right.T as it is done in format `name`, on the device, giving bfloat16."""
    a, b = _on(torch, device, left.data), _on(torch, device, right.data).t()
    if left.scale is None or right.scale is None:
        return lambda: a @ b
    scale_a, scale_b = left.scale.to(device), right.scale.to(device)
    if name == "mxfp4":
        return _with_recipe(torch, a, b, scale_a, scale_b)
    # torch tells tensor-wise fp8, MXFP8 and NVFP4 apart by the types and sizes of the scales.
    return lambda: torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16)


def _on(
    torch: ModuleType, device: torch_types.device, data: torch_types.Tensor
) -> torch_types.Tensor:
    if data.element_size() > 1:
        return data.to(device)
    # copied as bytes: not every torch can copy 4-bit floats from one device to another
    return data.view(torch.uint8).to(device).view(data.dtype)


def _with_recipe(
    torch: ModuleType, a: Any, b: Any, scale_a: Any, scale_b: Any
) -> Callable[[], Any]:
    """MXFP4 has to be asked for by name: by its scales alone torch does not recognise it."""
    functional = torch.nn.functional
    if not hasattr(functional, "scaled_mm"):
        raise MissingError(f"torch {torch.__version__} has no torch.nn.functional.scaled_mm")
    recipe = functional.ScalingType.BlockWise1x32
    swizzle = functional.SwizzleType.SWIZZLE_32_4_4
    kind = torch.bfloat16
    return lambda: functional.scaled_mm(
        a, b, scale_a, recipe, scale_b, recipe, swizzle, swizzle, output_dtype=kind
    )


def _kind(torch: ModuleType, name: str) -> Any:
    if not hasattr(torch, name):
        raise MissingError(f"torch {torch.__version__} has no torch.{name}")
    return getattr(torch, name)


def _normal(torch: ModuleType, generator: Any, rows: int, depth: int) -> Any:
    # mostly positive: then little cancels, and a wrong block changes the sum by much
    return torch.randn(rows, depth, generator=generator) + 1


def _bf16(torch: ModuleType, generator: Any, rows: int, depth: int) -> Operand:
    data = _normal(torch, generator, rows, depth).to(torch.bfloat16)
    return Operand(data, None, data.double())


def _fp8(torch: ModuleType, generator: Any, rows: int, depth: int) -> Operand:
    data = _normal(torch, generator, rows, depth).to(_kind(torch, "float8_e4m3fn"))
    scale = torch.tensor(0.5)
    return Operand(data, scale, data.double() * scale.double())


def _mxfp8(torch: ModuleType, generator: Any, rows: int, depth: int) -> Operand:
    data = _normal(torch, generator, rows, depth).to(_kind(torch, "float8_e4m3fn"))
    scale = _powers_of_two(torch, generator, rows, depth // 32)
    return _blocked(torch, data, data.double(), scale, 32)


def _nvfp4(torch: ModuleType, generator: Any, rows: int, depth: int) -> Operand:
    data, values = _codes(torch, generator, rows, depth)
    scale = torch.rand(rows, depth // 16, generator=generator) + 0.5
    return _blocked(torch, data, values, scale.to(_kind(torch, "float8_e4m3fn")), 16)


def _mxfp4(torch: ModuleType, generator: Any, rows: int, depth: int) -> Operand:
    data, values = _codes(torch, generator, rows, depth)
    scale = _powers_of_two(torch, generator, rows, depth // 32)
    return _blocked(torch, data, values, scale, 32)


_MAKERS: dict[str, Make] = {
    "bf16": _bf16,
    "fp8": _fp8,
    "mxfp8": _mxfp8,
    "nvfp4": _nvfp4,
    "mxfp4": _mxfp4,
}


def _powers_of_two(torch: ModuleType, generator: Any, rows: int, columns: int) -> Any:
    exponents = torch.randint(-2, 3, (rows, columns), generator=generator)
    return (2.0**exponents).to(_kind(torch, "float8_e8m0fnu"))


def _codes(torch: ModuleType, generator: Any, rows: int, depth: int) -> tuple[Any, Any]:
    """Return random 4-bit floats, two a byte with the first in the low half, and their values."""
    kind = _kind(torch, "float4_e2m1fn_x2")
    codes = torch.randint(8, (rows, depth), generator=generator, dtype=torch.uint8)
    negative = torch.rand(rows, depth, generator=generator) < 0.25
    values = torch.tensor(E2M1, dtype=torch.float64)[codes.long()]
    values = torch.where(negative, -values, values)
    codes = codes | (negative.to(torch.uint8) << 3)
    packed = codes[:, 0::2] | (codes[:, 1::2] << 4)
    return packed.contiguous().view(kind), values


def _blocked(torch: ModuleType, data: Any, values: Any, scale: Any, block: int) -> Operand:
    exact = values * scale.float().double().repeat_interleave(block, dim=1)
    return Operand(data, swizzled(torch, scale), exact)


def swizzled(torch: ModuleType, scale: torch_types.Tensor) -> torch_types.Tensor:
    """Return `scale` (rows x columns, multiples of 128 and 4) in the order tensor cores read it.

    In tiles of 128 x 4, row by row; in a tile, the scale of row r and column c is at
    (r mod 32) * 16 + (r div 32) * 4 + c (cuBLAS, "1D block scaling factors layout").
    """
    rows, columns = scale.shape
    tiles = scale.view(torch.uint8).view(rows // 128, 4, 32, columns // 4, 4)
    order = tiles.permute(0, 3, 2, 1, 4).contiguous()
    flat: torch_types.Tensor = order.flatten().view(scale.dtype)
    return flat
