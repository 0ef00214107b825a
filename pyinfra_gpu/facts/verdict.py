"""What the smoke test writes on a host: its verdict and the stamp of a pass, read on arrival.

A text comes from a host, so it is read once and strictly: what does not fit is `Unknown`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pyinfra_gpu.facts import document
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.on_host.smoke import document as written
from pyinfra_gpu.on_host.smoke.document import AcrossStamp, AllReduce

__all__ = ["AcrossStamp", "AcrossVerdict", "AllReduce", "AnyVerdict", "Stamp", "Verdict", "finite"]


class _Read:
    @classmethod
    def read(cls, text: str | Unknown | None) -> Self | Unknown | None:
        """Return what a host wrote; `Unknown` with the reason where it does not fit.

        + text: the file's; `None` = there is none

        Never raises, whatever the text is: too long, too deep, cut off, not JSON.
        """
        return document.read(cls, text)


@dataclass(frozen=True)
class Verdict(_Read, written.Verdict):
    """The verdict of the smoke test on one host."""


@dataclass(frozen=True)
class AcrossVerdict(_Read, written.AcrossVerdict):
    """The verdict on a step across hosts."""


@dataclass(frozen=True)
class Stamp(_Read, written.Stamp):
    """The stamp of the last pass."""


AnyVerdict = Verdict | AcrossVerdict


def finite(value: float | str | None) -> float | None:
    """Return a figure that can be shown and drawn; None for nan, inf and what is not there."""
    return None if isinstance(value, str) else value
