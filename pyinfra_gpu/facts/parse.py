"""From the probe's lines to the whole record: a pure function."""

from __future__ import annotations

from collections.abc import Iterable

from pyinfra_gpu.facts.fields import read_fields
from pyinfra_gpu.facts.record import Record, from_fields


def parse(lines: Iterable[str]) -> Record:
    """The record that the probe's lines tell; never raises, whatever the lines hold."""
    return from_fields(read_fields(lines))
