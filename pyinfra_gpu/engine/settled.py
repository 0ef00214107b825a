"""Hosts on which a run has nothing to do: judged at once, and given no operations.

pyinfra takes each operation of each host through planning and acting, which for a host that is as
declared was two thirds of what it cost the controller. Such a host is looked at while the deploy
file is loaded, judged as `check` judges it, and noted in the journal as its operations would have
noted it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra import context

from pyinfra_gpu.drift.concern import history_of, judged, unread
from pyinfra_gpu.drift.finding import Stage
from pyinfra_gpu.drift.host import CONCERNS
from pyinfra_gpu.engine import journal, lease
from pyinfra_gpu.engine.converge import note_findings
from pyinfra_gpu.engine.look import look

if TYPE_CHECKING:
    from pyinfra_gpu.drift.concern import Concern
    from pyinfra_gpu.drift.finding import Findings
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec


def settled(spec: HostSpec) -> bool:
    """Look at the current host; tell whether this run can leave it without any operation.

    + spec: the host's resolved specification

    To be asked in a deploy file, before the stages of all that is declared; only where it is False
    are they to be called, and all of them. Then nothing has been noted, and the operations use the
    same look. False wherever an operation would act, stop, or could not tell; where others count on
    this host, since it builds torch or takes part in a step across hosts; where somebody asked to
    see each operation (`-v`); and where no report is attached.
    """
    book = journal.current()
    if book is None or context.state.print_noop_info or _is_counted_on(spec):
        return False
    watch = journal.Stopwatch(Stage.PREFLIGHT)
    try:
        record = look(spec, beforehand=True)
        found = None if record is None or _is_named_twice(record) else _judged(spec, record)
    except Exception:  # the operation that comes to it says so, of this host alone
        return False
    if record is None or found is None:
        return False
    journal.saw(record)
    watch.stop()
    for concern, (summary, findings) in found.items():
        if not findings:
            journal.summary(concern.STAGE, summary)
        note_findings(concern.STAGE, spec, findings)
    book.settled.add(context.host.name)
    return True


def _is_named_twice(record: Record) -> bool:
    return lease.other_name(context.host, record) is not None


def _is_counted_on(spec: HostSpec) -> bool:
    return spec.smoke.across is not None or spec.pytorch.building is not None


def _judged(spec: HostSpec, record: Record) -> dict[Concern, tuple[str, Findings]] | None:
    """Return what there is and what was found, by concern; None if there is anything to do."""
    history = history_of(record)
    found: dict[Concern, tuple[str, Findings]] = {}
    for concern in CONCERNS:
        findings = judged(concern, spec, record, history)
        if findings.acting or findings.stopping or unread(concern, spec, record):
            return None
        found[concern] = concern.summary(spec, record), findings
    return found
