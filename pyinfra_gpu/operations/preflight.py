"""Refuse what cannot work, before anything is written."""

from __future__ import annotations

from pyinfra import host, state
from pyinfra.api.command import FunctionCommand
from pyinfra.api.state import StateStage

from pyinfra_gpu.drift import cuda, driver, libcuda, packages
from pyinfra_gpu.drift import preflight as drift
from pyinfra_gpu.drift.concern import Concern, history_of, judged
from pyinfra_gpu.drift.finding import Findings, Id
from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.converge import Commands, looking, note, refused
from pyinfra_gpu.engine.look import look
from pyinfra_gpu.engine.transaction import wait_for_lock
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.spec import HostSpec

_IDS = Id.of(drift.STAGE)
_TOLD_TOO: tuple[Concern, ...] = (driver, cuda, libcuda)


@looking(drift.STAGE, claims=_IDS)
def ready(spec: HostSpec, record: Record) -> Commands:
    """Ensure that this host can become what is declared; otherwise fail it with one sentence.

    Writes nothing, ever. Looks at the operating system, the architecture, free disk and memory,
    the Python to use, the GPUs on the PCI bus, what stands against the declared driver, and who
    is at work on GPUs. While somebody else installs packages and there is something for us to
    install, it waits, up to ``preflight_apt_wait_s`` seconds: a host in the middle of an upgrade
    cannot be judged.
    """
    acting = state.current_stage == StateStage.Execute
    if acting and isinstance(record.packages.lock_holder, str) and _something_to_do(spec, record):
        yield FunctionCommand(wait_for_lock, (drift.STAGE, spec), {})
        record = look(spec) or record
    found = note(drift, spec, record, _IDS)
    if refusal := refused(drift, spec, record, found):
        # The later stages do not get to judge a refused host, and a plan is to tell it all.
        for each in _later(spec, record):
            journal.found(each.stage, each)
        yield refusal
        return
    host.noop(f"can become what is declared: {drift.summary(spec, record)}")


def _later(spec: HostSpec, record: Record) -> Findings:
    history = history_of(record)
    return Findings(
        each for concern in _TOLD_TOO for each in judged(concern, spec, record, history)
    )


def _something_to_do(spec: HostSpec, record: Record) -> bool:
    """Tell whether a later stage would install packages; if none does, somebody else may."""
    later = (*packages.judge(spec, record), *_later(spec, record))
    return any(each.effect != "report" for each in later)
