"""Noting deviations together with the package action that explains them, by apt's own log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyinfra import host, state
from pyinfra.api.state import StateStage

from pyinfra_gpu.drift.history import explain, sentence
from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.converge import note
from pyinfra_gpu.facts.fields import Unknown

if TYPE_CHECKING:
    from pyinfra_gpu.drift.finding import Deviation
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec


def note_explained(
    stage: str, spec: HostSpec, record: Record, deviations: Sequence[Deviation], otherwise: str
) -> None:
    """Put deviations into the journal, and while acting also which package action explains them.

    + otherwise: what was found where there is none, in a few words

    The log is read as it was when this run first looked: what the run itself does explains nothing.
    """
    note(stage, spec, deviations, otherwise)
    kept = journal.current()
    first = kept.looks.get(host.name, record) if kept else record
    history = first.apt.history
    if state.current_stage != StateStage.Execute or isinstance(history, Unknown):
        return
    for each in deviations:
        change = explain(each.packages, history)
        if change is not None:
            journal.warn(stage, f"{spec.host}: {each.found}: {sentence(change)}")
