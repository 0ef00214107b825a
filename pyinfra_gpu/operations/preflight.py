"""Refuse what cannot work, before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra import host, state
from pyinfra.api.command import FunctionCommand
from pyinfra.api.state import StateStage

from pyinfra_gpu.drift import cuda, driver, libcuda
from pyinfra_gpu.drift.cannot_tell import CannotTell
from pyinfra_gpu.drift.preflight import complaints, summary
from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.converge import Commands, converging, refuse
from pyinfra_gpu.engine.look import look
from pyinfra_gpu.engine.package_manager import wait_for_lock
from pyinfra_gpu.packages.needed import missing

if TYPE_CHECKING:
    from pyinfra_gpu.drift.finding import Deviation
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = "preflight"


@converging(STAGE)
def ready(spec: HostSpec, record: Record) -> Commands:
    """Ensure that this host can become what is declared; otherwise fail it with one sentence.

    + spec: the host's resolved specification

    Writes nothing, ever. Looks at the operating system, the architecture, free disk and memory,
    the Python to use, the GPUs on the PCI bus, what stands against the declared driver, and who
    is at work on GPUs. While somebody else's apt is at work and there is something for ours to do,
    it waits, up to ``preflight_apt_wait_s`` seconds: a host in the middle of an upgrade cannot be
    judged.

    **Example:**

    .. code:: python

        preflight.ready(name="Check that this host can work", spec=wanted)
    """
    acting = state.current_stage == StateStage.Execute
    if acting and isinstance(record.packages.lock_holder, str) and _something_to_do(spec, record):
        yield FunctionCommand(wait_for_lock, (STAGE, spec), {})
        record = look(spec) or record
    journal.found(STAGE, summary(record))
    refusals = complaints(spec, record)
    if refusals:
        # The later stages do not get to judge a refused host, and a check is to tell it all.
        for each in _deviations(spec, record):
            journal.deviation(each.stage, each)
        if any(isinstance(each, CannotTell) for each in refusals):
            journal.unreadable(STAGE)
        yield refuse(STAGE, "; ".join(refusals))
        return
    host.noop(f"can become what is declared: {summary(record)}")


def _deviations(spec: HostSpec, record: Record) -> list[Deviation]:
    return [
        *driver.deviations(spec, record),
        *cuda.deviations(spec, record),
        *libcuda.deviations(spec, record),
    ]


def _something_to_do(spec: HostSpec, record: Record) -> bool:
    """Tell whether a later stage would use apt; on a healthy host somebody's apt is no concern."""
    return bool(missing(spec, record)) or any(
        each.effect != "report" for each in _deviations(spec, record)
    )
