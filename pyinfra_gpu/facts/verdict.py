"""What the smoke test writes on a host: its verdict and the stamp of a pass, read on arrival.

A text comes from a host, so it is read once and strictly: what does not fit is `Unknown`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra_gpu.facts.document import Readable
from pyinfra_gpu.on_host.smoke import document as written
from pyinfra_gpu.on_host.smoke.document import AllReduce

__all__ = ["AllReduce", "Stamp", "Verdict"]


@dataclass(frozen=True)
class Verdict(Readable, written.Verdict):
    """The verdict of the smoke test on one host, or of one step that several hosts took."""


@dataclass(frozen=True)
class Stamp(Readable, written.Stamp):
    """The stamp of the last pass."""
