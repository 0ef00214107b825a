"""Refuse what cannot work, before anything is written."""

from __future__ import annotations

from pyinfra import host
from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.engine.converge import Commands, looking, note, refuse, refused
from pyinfra_gpu.engine.look import look
from pyinfra_gpu.engine.meeting import executing
from pyinfra_gpu.engine.transaction import wait_for_lock
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stages.finding import Id
from pyinfra_gpu.stages.preflight import findings
from pyinfra_gpu.stages.training.operations import unreachable

_IDS = Id.of(findings.STAGE)


@looking(findings.STAGE, claims=_IDS)
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
    if held and any(each.effect != "report" for each in findings.installing(spec, record)):
        yield FunctionCommand(wait_for_lock, (findings.STAGE, spec), {})
        record = look(spec) or record
    found = note(findings, spec, record, _IDS)
    if refusal := refused(findings, spec, record, found):
        yield refusal
    elif sentence := unreachable(spec, record):
        yield refuse(findings.STAGE, sentence)
    else:
        host.noop(f"can become what is declared: {findings.summary(spec, record)}")
