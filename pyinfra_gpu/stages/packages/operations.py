"""Distribution packages: the few that the stages need, and what data adds."""

from __future__ import annotations

from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.engine.converge import Commands, converging
from pyinfra_gpu.engine.transaction import install
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stages.finding import Findings
from pyinfra_gpu.stages.packages import findings

_HINT = "a name that only other packages provide never counts as installed: name one of those"


@converging(findings, repairs=findings.IDS, hint=_HINT)
def present(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the packages the stages and ``packages_extra`` need are installed.

    Somebody else who installs packages is waited for, up to ``preflight_apt_wait_s`` seconds, and
    never interrupted. A package that an interrupted run left half installed is finished first.
    What they need comes by the same simulated and guarded transaction as the driver.
    """
    del record
    names = [name for each in found for name in each.packages]
    how = {"hint": "no source of this host offers all of them"}
    yield FunctionCommand(install, (findings.STAGE, spec, names), how)
