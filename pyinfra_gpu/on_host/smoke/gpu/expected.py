"""What a sound GPU of a known kind shows; a GPU that is not listed is measured and never judged.

Figures are dense, without sparsity, in TFLOP/s and GB/s. `bf16` and `memory` are the vendor's
(for GeForce with fp32 accumulation, which runs at half rate there); the bounds are fractions of
them, set below what was seen measured on sound cards, so that only a card that is clearly slow
falls under them:

    RTX 5090   224-226 TFLOP/s reported for torch.matmul on torch 2.10-2.13
    H100 SXM   798 TFLOP/s, 3.0 TB/s    } 8192 x 8192 x 8192, random data; a copy counted
    H200       788 TFLOP/s, 4.3 TB/s    } as read plus written
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Figures:
    """One kind of GPU; `capability` and `memory_mib` (None: several sizes) identify it."""

    pattern: str
    capability: tuple[int, int]
    memory_mib: int | None
    bf16: float
    memory: float
    source: str
    warn: float = 0.75
    """Fraction of the vendor's figure below which a card is called slow."""
    fail: float = 0.45
    """Fraction below which something is broken, not merely slow."""


_SERVER = {"warn": 0.6, "fail": 0.4}  # torch.matmul stays well below their data sheets
_LOW_POWER = {"warn": 0.35, "fail": 0.2}  # the power limit, not the arithmetic, sets the pace

_KNOWN = (
    Figures(r"RTX 5090 D v2", (12, 0), None, 209.5, 1344, "NVIDIA's product page"),
    Figures(r"RTX 5090\b(?!.*Laptop)", (12, 0), 32607, 209.5, 1792, "RTX Blackwell whitepaper"),
    Figures(r"RTX 4090\b(?!.*(Laptop| D))", (8, 9), 24564, 165.2, 1008, "Ada whitepaper"),
    Figures(r"RTX 3090\b(?! Ti)", (8, 6), 24576, 71.0, 936, "Ampere GA102 whitepaper"),
    Figures(r"\bH200 NVL", (9, 0), None, 835, 4800, "H200 data sheet", **_LOW_POWER),
    Figures(r"\bH200\b", (9, 0), None, 989, 4800, "H200 data sheet", **_SERVER),
    Figures(r"H100 80GB HBM3", (9, 0), None, 989, 3350, "H100 data sheet", **_SERVER),
    Figures(r"H100 PCIe", (9, 0), None, 756, 2000, "H100 data sheet", **_LOW_POWER),
    Figures(r"\bB200\b", (10, 0), None, 2250, 8000, "DGX B200 data sheet", **_SERVER),
    Figures(r"A100.*80GB", (8, 0), None, 312, 1935, "A100 data sheet", **_SERVER),
    Figures(r"A100.*40GB", (8, 0), None, 312, 1555, "A100 data sheet", **_SERVER),
    Figures(r"\bL4\b", (8, 9), None, 121, 300, "L4 data sheet", **_LOW_POWER),
    Figures(r"\bL40S\b", (8, 9), None, 362, 864, "L40S data sheet", **_LOW_POWER),
)

MEMORY_TOLERANCE = 0.02
LINK_WARN = 0.25
LINK_FAIL = 0.10
"""Fractions of the loaded PCIe link's one-way rate for all-reduce bus bandwidth. No figure is
published for two stock RTX 5090; through host memory 0.35 to 0.6 is expected (derived)."""

_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""GB/s of one PCIe lane in one direction, by generation (PCI-SIG, after line coding)."""


def figures(name: str) -> Figures | None:
    """Return what is expected of the GPU nvidia-smi calls `name`, None if it is not known."""
    return next((entry for entry in _KNOWN if re.search(entry.pattern, name)), None)


def link_rate(generation: int, width: int) -> float | None:
    """Return a PCIe link's one-way rate in GB/s, None for a generation not known."""
    lane = _LANE.get(generation)
    return None if lane is None or width < 1 else round(lane * width, 3)


def is_geforce(name: str) -> bool:
    """Return whether NVIDIA's driver withholds PCIe peer-to-peer from this GPU."""
    return "GeForce" in name or "TITAN" in name
