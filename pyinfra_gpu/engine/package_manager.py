"""The package manager between two transactions: who uses it now, and what was interrupted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyinfra_gpu.engine.look import forget, look
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import failed, step

if TYPE_CHECKING:
    from pyinfra.api.command import PyinfraCommand
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.spec import HostSpec

_POLL_S = 2.0

# --force-confold keeps the user's configuration files without asking; see dpkg(1).
_CONFIGURE = "DEBIAN_FRONTEND=noninteractive dpkg --force-confold --configure -a"


def finish_interrupted(stage: str, spec: HostSpec, *, entirely: bool = True) -> PyinfraCommand:
    """Return the command that finishes what an interrupted dpkg left.

    + entirely: whether the host fails where dpkg cannot; a package that was cut off while it was
      unpacked has to be fetched again, and only apt can do that
    """
    command = _CONFIGURE if entirely else f"{_CONFIGURE} || true"
    return step(stage, "finish an interrupted dpkg", command, run_as=as_root(spec))


def wait_for_lock(state: State, host: Host, stage: str, spec: HostSpec) -> bool:
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
