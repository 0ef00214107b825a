"""The distribution packages that the stages need: installed by pyinfra's own operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra import host
from pyinfra.api.command import FunctionCommand
from pyinfra.operations import apt

from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.converge import Commands, converging, unknown, verify
from pyinfra_gpu.engine.package_manager import finish_interrupted, wait_for_lock
from pyinfra_gpu.packages.needed import missing

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = "packages"
_POLL_S = 2.0


@converging(STAGE)
def present(spec: HostSpec, record: Record) -> Commands:
    """Ensure that the few distribution packages the stages need are installed.

    + spec: the host's resolved specification

    Another apt or dpkg at work is waited for, up to ``preflight_apt_wait_s`` seconds, and never
    interrupted. A package that an interrupted run left half installed is finished first.

    **Example:**

    .. code:: python

        packages.present(name="Install what the stages need", spec=wanted)
    """
    if refusal := unknown(STAGE, spec, record.packages.installed, record.packages.half_configured):
        yield refusal
        return
    absent = missing(spec, record)
    if not absent:
        journal.found(STAGE, "complete")
        host.noop("every package is installed")
        return
    journal.found(STAGE, f"lacks {', '.join(absent)}")
    journal.changed(STAGE, ", ".join(absent))
    yield FunctionCommand(wait_for_lock, (STAGE, spec), {})
    if record.packages.half_configured:
        yield finish_interrupted(STAGE, spec)
    yield from apt.packages._inner(
        packages=absent,
        update=True,
        no_recommends=True,
        # Somebody may take the lock between our look and this command; see apt-get(8).
        extra_install_args=f"-o DPkg::Lock::Timeout={max(spec.preflight.apt_wait_s, 1)}",
    )
    yield verify(STAGE, spec, _still_wrong)


def _still_wrong(spec: HostSpec, record: Record) -> str | None:
    absent = missing(spec, record)
    return f"{', '.join(absent)} not installed" if absent else None
