"""What a sound GPU of a known kind shows; a GPU that is not listed is measured and never judged.

The kinds are data, which travels beside this file: the bundle is packed with it.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KINDS_FILE = "kinds.json"
"""In the folder of this file, in the bundle: one object for each kind, with the keys of `Kind`."""

Kinds = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Kind:
    """One kind of GPU; figures are the vendor's, dense, in TFLOP/s and GB/s.

    + pattern: regular expression for what nvidia-smi calls it
    + capability: its compute capability, major and minor
    + memory_mib: what nvidia-smi shows of every card of this kind; None: several sizes, or not sure
    + warn: fraction of the vendor's figure below which a card is called slow
    + fail: fraction below which something is broken, not merely slow
    + source: where the figures are from
    """

    pattern: str
    capability: Sequence[int]
    memory_mib: int | None
    bf16_tflops: float
    memory_gb_s: float
    warn: float
    fail: float
    source: str


MEMORY_TOLERANCE = 0.02
LINK_WARN = 0.25
LINK_FAIL = 0.10
"""Fractions of the loaded PCIe link's one-way rate for all-reduce bus bandwidth. No figure is
published for two stock RTX 5090; through host memory 0.35 to 0.6 is expected (derived)."""

_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""GB/s of one PCIe lane in one direction, by generation (PCI-SIG, after line coding)."""


def kinds() -> Kinds:
    """Return the kinds that this bundle knows; raises OSError where it was packed without them."""
    data = pkgutil.get_data(__package__, KINDS_FILE)
    found: Kinds = json.loads(data or "[]")
    return found


def kind_of(name: str, known: Kinds) -> Kind | None:
    """Return what is expected of the GPU nvidia-smi calls `name`, None if it is not known."""
    found = next((each for each in known if re.search(each["pattern"], name)), None)
    return None if found is None else Kind(**found)


def link_rate(generation: int, width: int) -> float | None:
    """Return a PCIe link's one-way rate in GB/s, None for a generation not known."""
    lane = _LANE.get(generation)
    return None if lane is None or width < 1 else round(lane * width, 3)


def is_geforce(name: str) -> bool:
    """Return whether NVIDIA's driver withholds PCIe peer-to-peer from this GPU."""
    return "GeForce" in name or "TITAN" in name
