"""The package manager of a host: which it is, who uses it now, what it left, why it failed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.ask import Answer
from pyinfra_gpu.engine.look import forget, look
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import failed, reason, step
from pyinfra_gpu.packages import PackageManager, manager_for

if TYPE_CHECKING:
    from pyinfra.api.command import PyinfraCommand
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

PYTHON = "python3-minimal"
_POLL_S = 2.0


def manager_of(record: Record | None) -> PackageManager:
    """Return the package manager of the host that was looked at."""
    return manager_for(record.system.os_id if record else None)


def why(manager: PackageManager, answer: Answer) -> str:
    """Return why a command of the package manager failed, in one clause."""
    if answer.lost:
        return answer.lines[-1]
    return reason(manager.errors_in(answer.lines), said_by=manager.name)


def finish_interrupted(
    stage: str, spec: HostSpec, record: Record, *, entirely: bool = True
) -> PyinfraCommand:
    """Return the command that finishes what an interrupted installation left.

    + entirely: whether the host fails where that cannot be; a package that was cut off while it
      was unpacked has to be fetched again, and only a transaction can do that
    """
    command = manager_of(record).finish()
    if not entirely:
        command = f"{command} || true"
    return step(
        stage,
        "finish an interrupted installation",
        command,
        run_as=as_root(spec),
        seconds=deadlines.INSTALL,
    )


def first_package(stage: str, spec: HostSpec) -> PyinfraCommand:
    """Return the command that installs the Python by which a host is looked at."""
    manager = manager_for(None)
    words = " && ".join(map(str, manager.install((PYTHON,), spec.preflight.apt_wait_s)))
    return step(stage, f"install {PYTHON}", words, run_as=as_root(spec), seconds=deadlines.INSTALL)


def wait_for_lock(state: State, host: Host, stage: str, spec: HostSpec) -> bool:
    """Wait until nobody else holds the package manager's lock; fail this host after a while.

    + stage: the one whose problem it is then
    + spec: says how long, by ``preflight_apt_wait_s``
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
                f"{spec.host}: {manager_of(record).name} is in use by {holder} for more than"
                f" {spec.preflight.apt_wait_s} s; let it finish and run again, or raise"
                " `preflight_apt_wait_s`"
            )
            return failed(host, stage, sentence)
        if not told:
            wait_s = spec.preflight.apt_wait_s
            host.log(f"waiting up to {wait_s} s for {holder}, which installs packages")
            told = True
        time.sleep(_POLL_S)
