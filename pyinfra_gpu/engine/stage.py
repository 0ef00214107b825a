"""Hosts on which a run has nothing to do: judged at once, and given no operations.

Such a host is looked at before its first stage and noted in the journal as its operations would
have noted it; pyinfra would take each operation of it through planning and acting.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps

from pyinfra import context
from pyinfra.api import deploy

from pyinfra_gpu.drift.concern import history_of, judged, unread
from pyinfra_gpu.drift.finding import Stage
from pyinfra_gpu.drift.host import CONCERNS
from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.converge import note_findings
from pyinfra_gpu.engine.look import look
from pyinfra_gpu.spec import HostSpec

_KEY = "pyinfra_gpu_nothing_to_do"  # in connector_data, pyinfra's own of this host and run


def stage(name: str) -> Callable[[Callable[[HostSpec], None]], Callable[[HostSpec], None]]:
    """Make a function that composes operations one stage of a deploy.

    + name: what stands before its operations' names

    It is pyinfra's `deploy`, but for hosts on which the whole run has nothing to do: these are
    judged as `check` judges them, when their first stage is called, and get no operations.
    """

    def decorate(compose: Callable[[HostSpec], None]) -> Callable[[HostSpec], None]:
        composed: Callable[[HostSpec], None] = deploy(name)(compose)  # type: ignore[assignment]

        @wraps(compose)
        def called(wanted: HostSpec) -> None:
            if not nothing_to_do(wanted):
                composed(wanted)

        return called

    return decorate


def nothing_to_do(spec: HostSpec) -> bool:
    """Tell whether this run can leave the current host without any operation.

    + spec: the host's resolved specification

    False wherever an operation would act, stop, or could not tell; where others count on this
    host, since it builds torch or takes part in a step across hosts; where somebody asked to see
    each operation (`-v`); and where no report is attached. The operations use the same look.
    """
    book, known = journal.current(), context.host.connector_data
    counted_on = spec.smoke.across is not None or spec.pytorch.building is not None
    if book is None or context.state.print_noop_info or counted_on:
        return False
    if _KEY not in known:
        try:
            known[_KEY] = _judged(spec, book)
        except Exception:  # the operation that comes to it says so, of this host alone
            known[_KEY] = False
    return bool(known[_KEY])


def _judged(spec: HostSpec, book: journal.Journal) -> bool:
    """Look at the host and judge it; note what is found if no operation would do anything."""
    started = time.monotonic()
    if (record := look(spec)) is None:
        return False
    history = history_of(record)
    found = {each: judged(each, spec, record, history) for each in CONCERNS}
    if any(x.acting or x.stopping or unread(each, spec, record) for each, x in found.items()):
        return False
    summaries = {each: each.summary(spec, record) for each, x in found.items() if not x}
    journal.saw(record)
    book.entry(context.host.name, Stage.PREFLIGHT).seconds += time.monotonic() - started
    for concern, findings in found.items():
        if concern in summaries:
            journal.summary(concern.STAGE, summaries[concern])
        note_findings(concern.STAGE, spec, findings)
    book.as_declared.add(context.host.name)
    return True
