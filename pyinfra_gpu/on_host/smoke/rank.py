"""One rank, as whoever measures sees it; and torch, which is imported when it is first used: by
ranks, and never by the launcher.
"""

from __future__ import annotations

import importlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .journal import Writer

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist
else:

    class _Lazy:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.import_module(self._name), name)

    torch, dist = _Lazy("torch"), _Lazy("torch.distributed")

__all__ = ["Rank", "dist", "torch"]


@dataclass
class Rank:
    """One rank of `world_size`, with its journal and the device that its tensors are on.

    + directory: where all ranks of this host write
    """

    journal: Writer
    rank: int
    world_size: int
    device: torch.device
    directory: Path
    allreduce_mib: int = 1

    @property
    def compiles(self) -> bool:
        """Whether this rank compiles: on the CPU of a host one does it for all."""
        return self.device.type != "cpu" or self.rank == 0

    def meet(self, name: str) -> None:
        """Wait until all ranks of this host have come here.

        Not by a collective, whose watchdog ends a rank that waits for longer than a minute: a
        compiler on slow cores takes that. A hang is the launcher's to end, here too.
        """
        self.journal.step("waiting for the other ranks")
        (self.directory / f"{name}.{self.rank}").touch()
        while len([*self.directory.glob(f"{name}.*")]) < self.world_size:
            time.sleep(0.02)
