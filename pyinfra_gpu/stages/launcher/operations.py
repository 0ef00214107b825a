"""The launcher of training runs: root's program, what it reads, and linger for the owner."""

from __future__ import annotations

from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.converge import Commands, converging
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import quoted, step
from pyinfra_gpu.engine.write import write
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stages.finding import Findings, Id
from pyinfra_gpu.stages.launcher import findings
from pyinfra_gpu.stages.layout.findings import owner_name

STAGE = findings.STAGE


@converging(
    findings,
    repairs=(Id.TRAINING_LAUNCHER_DIFFERS, Id.TRAINING_MANAGER_OFF, Id.TRAINING_RUN_ON),
)
def installed(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that ``train`` is there with the declared presets, and that runs outlive a login.

    Runs go on: each has read all of its own before it began. What they use is left alone until
    they have ended.
    """
    for file in findings.wrong(spec, record):
        yield write(STAGE, file, as_root(spec))
    if found.of(Id.TRAINING_MANAGER_OFF):
        owner = quoted(owner_name(spec, record))
        yield step(
            STAGE,
            "let the owner's user manager run without a login",
            f'loginctl enable-linger {owner} && systemctl start "user@$(id -u {owner}).service"',
            run_as=as_root(spec),
            seconds=deadlines.SERVICE,
        )
