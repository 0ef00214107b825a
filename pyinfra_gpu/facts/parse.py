"""From a host's lines to the whole record: a pure function."""

from __future__ import annotations

from collections.abc import Iterable

from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.record import Record, from_answer


def parse(lines: Iterable[str]) -> Record:
    """The record that a host's lines tell; never raises, whatever the lines hold."""
    return from_answer(Answer(lines))
