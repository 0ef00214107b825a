"""torch as a module that is imported when it is first used: by ranks, and never by the launcher."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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

__all__ = ["dist", "torch"]
