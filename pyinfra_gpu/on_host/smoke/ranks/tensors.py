"""Tensor helpers that need no numpy."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterable

import torch


def sha256(tensors: Iterable[torch.Tensor]) -> str:
    """Return the SHA-256 over the bytes of `tensors` in order."""
    digest = hashlib.sha256()
    for tensor in tensors:
        here = tensor.detach().contiguous().cpu()
        size = here.numel() * here.element_size()
        if size:
            digest.update((ctypes.c_char * size).from_address(here.data_ptr()))
    return digest.hexdigest()
