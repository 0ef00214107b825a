"""A stand-in for rehearsals; nothing of PyTorch is in it."""

from __future__ import annotations

import ctypes
from pathlib import Path

from . import version
from .version import __version__

__all__ = ["__version__", "library", "version"]

library = ctypes.CDLL(str(Path(__file__).parent / "lib/libtorch_cpu.so"))
