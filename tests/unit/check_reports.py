"""Made-up judgements of hosts, for the tests of what `check` answers and how it is shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyinfra_gpu.packages.model import PackageChange
from pyinfra_gpu.report.check.answer import HostAnswer, answered
from pyinfra_gpu.stages.finding import Effect, Finding, Findings, Id, Stage
from pyinfra_gpu.stages.host import StageJudgement

UPGRADE = PackageChange(
    when="2026-11-21T06:12:03",
    action="Upgrade",
    name="libcuda1",
    old="580.95.05-1",
    new="580.105.08-1",
    by=None,
    command="/usr/bin/unattended-upgrade",
)


def stage(
    name: str, *findings: Finding, found: str = "as declared", unread: tuple[str, ...] = ()
) -> StageJudgement:
    """One stage of a host; without findings it is as declared."""
    return StageJudgement(
        stage=Stage(name), summaries=(found,), findings=Findings(findings), unread=unread
    )


def finding(id_: Id, effect: Effect = "repair", **changes: Any) -> Finding:
    """One finding."""
    values = {
        "found": f"{id_} is wrong",
        "expected": f"{id_} is right",
        "action": f"repairs {id_}",
        **changes,
    }
    return Finding(id=id_, effect=effect, **values)


def host(name: str = "gpu1", *stages: StageJudgement, **known: Any) -> HostAnswer:
    """One host; without stages it is as declared."""
    healthy = (stage("preflight"), stage("driver"), stage("smoke"))
    return answered(name, stages or healthy, **known)


def unreachable(name: str = "gpu1", why: str = "timed out") -> HostAnswer:
    """A host that could not be connected to."""
    reason = f"could not be reached: {why}"
    return HostAnswer(name=name, problem=reason, unreachable=True)


RESTART = stage("driver", finding(Id.DRIVER_MODULE_DIFFERS, "restart", since=UPGRADE))
SMOKE_OWED = stage("smoke", finding(Id.SMOKE_UNPROVEN))
NOTE = finding(Id.SMOKE_PROOF_BEFORE_BOOT, "note", repeats=True)
REPAIR = finding(Id.LIBCUDA_LINK_DIFFERS)
REPORT = finding(Id.CUDA_SHELL_PATH, "report", command="dpkg -S /opt/bin/nvcc")
STOP = replace(
    finding(Id.PREFLIGHT_GPUS_DIFFER, "report"), stops=True, action="check seating and power"
)
