"""Refuse what cannot work, before anything is written."""

from __future__ import annotations

from pyinfra import host
from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.drift import host as whole_host
from pyinfra_gpu.drift import preflight as drift
from pyinfra_gpu.drift.finding import Findings, Id, Stage
from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.converge import Commands, looking, note, refuse, refused
from pyinfra_gpu.engine.look import look
from pyinfra_gpu.engine.meeting import executing
from pyinfra_gpu.engine.transaction import wait_for_lock
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.operations.training import unreachable
from pyinfra_gpu.spec import HostSpec

_IDS = Id.of(drift.STAGE)
_INSTALLING = (Stage.PACKAGES, *whole_host.REFUSED_TOO)


@looking(drift.STAGE, claims=_IDS)
def ready(spec: HostSpec, record: Record) -> Commands:
    """Ensure that this host can become what is declared; otherwise fail it with one sentence.

    Writes nothing, ever. Looks at the operating system, the architecture, free disk and memory,
    the Python to use, the GPUs on the PCI bus, what stands against the declared driver, and who
    is at work on GPUs, and asks git whether the training repository's commit can be fetched. While
    somebody else installs packages and there is something for us to install, it waits, up to
    ``preflight_apt_wait_s`` seconds: a host in the middle of an upgrade cannot be judged.
    """
    held = executing() and isinstance(record.packages.lock_holder, str)
    # Where we install nothing, somebody else may.
    if held and any(each.effect != "report" for each in _later(spec, record)):
        yield FunctionCommand(wait_for_lock, (drift.STAGE, spec), {})
        record = look(spec) or record
    found = note(drift, spec, record, _IDS)
    refusal = refused(drift, spec, record, found)
    if not refusal and (sentence := unreachable(spec, record)):
        refusal = refuse(drift.STAGE, sentence)
    if refusal:
        # The later stages do not get to judge a refused host, and a plan is to tell it all.
        for each in _later(spec, record):
            journal.found(each.stage, each)
        yield refusal
        return
    host.noop(f"can become what is declared: {drift.summary(spec, record)}")


def _later(spec: HostSpec, record: Record) -> Findings:
    """Return what `check` finds in the stages that install packages."""
    stages = [each for each in whole_host.judge(spec, record) if each.stage in _INSTALLING]
    return Findings(finding for each in stages for finding in each.findings)
