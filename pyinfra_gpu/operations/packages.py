"""Distribution packages: wait for whoever uses apt, finish what was interrupted, install."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyinfra import host
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.operations import apt

from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.converge import Commands, converging, unknown, verify
from pyinfra_gpu.engine.look import forget, look
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import failed, step
from pyinfra_gpu.packages.needed import missing

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

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
    yield FunctionCommand(wait_for_apt, (STAGE, spec), {})
    if record.packages.half_configured:
        yield finish(STAGE, spec)
    yield from apt.packages._inner(
        packages=absent,
        update=True,
        no_recommends=True,
        # Somebody may take the lock between our look and this command; see apt-get(8).
        extra_install_args=f"-o DPkg::Lock::Timeout={max(spec.preflight.apt_wait_s, 1)}",
    )
    yield verify(STAGE, spec, _still_wrong)


# --force-confold keeps the user's configuration files without asking; see dpkg(1).
_CONFIGURE = "DEBIAN_FRONTEND=noninteractive dpkg --force-confold --configure -a"


def finish(stage: str, spec: HostSpec, *, entirely: bool = True) -> PyinfraCommand:
    """Return the command that finishes what an interrupted dpkg left.

    + entirely: whether the host fails where dpkg cannot; a package that was cut off while it was
      unpacked has to be fetched again, and only apt can do that
    """
    command = _CONFIGURE if entirely else f"{_CONFIGURE} || true"
    return step(stage, "finish an interrupted dpkg", command, run_as=as_root(spec))


def _still_wrong(spec: HostSpec, record: Record) -> str | None:
    absent = missing(spec, record)
    return f"{', '.join(absent)} not installed" if absent else None


def wait_for_apt(state: State, host: Host, stage: str, spec: HostSpec) -> bool:
    """Wait until nobody else holds apt's locks; fail this host after the declared time.

    + stage: the one whose problem it is then
    """
    deadline = time.monotonic() + spec.preflight.apt_wait_s
    told = False
    while True:
        forget()
        record = look(spec)
        holder = record.packages.lock_holder if record else None
        if not isinstance(holder, str):
            return True
        if time.monotonic() >= deadline:
            sentence = (
                f"{spec.host}: apt is in use by {holder} for more than"
                f" {spec.preflight.apt_wait_s} s; let it finish and run again, or raise"
                " `preflight_apt_wait_s`"
            )
            return failed(host, stage, sentence)
        if not told:
            host.log(f"waiting up to {spec.preflight.apt_wait_s} s for {holder} to finish with apt")
            told = True
        time.sleep(_POLL_S)
