"""A wheel that a lock names: where it is, and its digest."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra_gpu.spec.lock import Locked


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelFile:
    """A wheel that a lock names, and where it was found; `size` in bytes, None = not told."""

    name: str
    url: str
    sha256: str
    size: int | None


Found = list[tuple[Locked, tuple[WheelFile, ...]]]
"""Packages, each with its files."""
