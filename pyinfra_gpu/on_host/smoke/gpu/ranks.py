"""What a rank on a GPU does before and right after NCCL starts."""

from __future__ import annotations

import os
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import device as one_device
from . import one_gpu

if TYPE_CHECKING:
    import torch as torch_types

REHEARSAL_1GPU = "rehearsal-1gpu"


def prepare(
    torch: ModuleType, mode: str, rank: int, local_rank: int, route: str | None = None
) -> torch_types.device:
    """Choose this rank's GPU and make it current; call before `init_process_group`.

    + mode: "gpu" (local rank n takes GPU n) or "rehearsal-1gpu" (all take GPU 0)
    + route: how NCCL is brought to have two ranks on one GPU; None: as its version needs
    """
    shared = mode == REHEARSAL_1GPU
    if shared:
        chosen = route or one_gpu.route(one_device.nccl_version(torch))
        os.environ.update(one_gpu.environment(chosen, rank))
    device: torch_types.device = torch.device("cuda", 0 if shared else local_rank)
    torch.cuda.set_device(device)
    return device


def identity(torch: ModuleType, device: torch_types.device) -> dict[str, Any]:
    """Return the fact `gpu`: which GPU this rank has, and with which NCCL."""
    route = next(
        (name for name in (one_gpu.HOST_ID, one_gpu.MULTI_RANK) if name in os.environ), None
    )
    return {
        **one_device.identity(torch, device.index),
        "cuda": torch.version.cuda,
        "nccl": one_device.nccl_version(torch),
        "route": route,
    }
