"""What a deploy leaves alone while a training run is running: all that it uses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pyinfra_gpu.drift import training
from pyinfra_gpu.drift.finding import Finding, Id, Stage
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.text import some

_STAGES = (Stage.DRIVER, Stage.LIBCUDA, Stage.PYTORCH, Stage.SMOKE)
_ALONE = (
    # It stops a run that would load another driver; with these stages put off, none is loaded.
    Id.PREFLIGHT_GPUS_IN_USE,
    *training.CHECKOUT,
    Id.TRAINING_REQUIREMENTS_DIFFER,
)

_FEW = 3


def deferred_by(record: Record) -> str:
    """Name the training runs that are running; empty where none is."""
    runs = record.launcher.runs
    if isinstance(runs, Unknown) or not runs:
        return ""
    return f"run{'s' if len(runs) > 1 else ''} {some(runs, _FEW)}"


def undetermined(spec: HostSpec, record: Record, stage: Stage) -> str | None:
    """Return why nobody can say whether a run uses what this stage would touch; None if one can."""
    runs = record.launcher.runs
    if spec.training is None or stage not in _STAGES or not isinstance(runs, Unknown):
        return None
    return f"cannot tell whether a training run is running: {runs.reason}"


def deferred(found: Iterable[Finding], runs: str) -> list[Finding]:
    """Return the findings; what would touch what a run uses is left until it has ended.

    + runs: what `deferred_by` returns
    """
    action = f"waits for {runs}, which uses it: run again when that has ended"
    return [
        replace(
            each,
            effect="note" if each.effect == "note" else "report",
            repeats=False,
            stops=False,
            command=None,
            action=action,
        )
        if runs and _touches(each)
        else each
        for each in found
    ]


def _touches(each: Finding) -> bool:
    if each.stops:
        return each.id in _ALONE
    return each.acts and (each.stage in _STAGES or each.id in _ALONE)
