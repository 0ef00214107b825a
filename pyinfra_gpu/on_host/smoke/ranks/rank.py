"""What every measurement on a rank is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..journal import Writer
from ..options import WorkerOptions

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Rank:
    """One rank of `world_size`, with its journal and the device that its tensors are on."""

    options: WorkerOptions
    journal: Writer
    rank: int
    world_size: int
    device: torch.device
