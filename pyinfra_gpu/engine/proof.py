"""Running a proof on the host: bring its programs, run it as the owner, keep its result there."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, cast

from pyinfra.operations import files

from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.privilege import as_owner, file_owner
from pyinfra_gpu.engine.steps import quoted, step
from pyinfra_gpu.on_host import proofs

if TYPE_CHECKING:
    from pyinfra.api.command import PyinfraCommand

    from pyinfra_gpu.engine.converge import Commands
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec


def programs(stage: str, spec: HostSpec, record: Record) -> Commands:
    """Put a stage's programs into the folder of proofs, which the stage "base" makes.

    + stage: "cuda" or "libcuda"
    """
    for name, content in proofs.programs(cast(proofs.Proof, stage)).items():
        yield from files.put._inner(
            src=BytesIO(content),
            dest=f"{spec.paths.proofs}/{name}",
            mode="0644",
            user=file_owner(spec, record),
            create_remote_dir=False,
        )


def run(
    stage: str, spec: HostSpec, record: Record, what: str, arguments: Sequence[str]
) -> PyinfraCommand:
    """Return the command that runs a stage's proof.

    + stage: "cuda" or "libcuda"
    + what: what it proves, for the log
    + arguments: those of its shell script, see there
    """
    script = proofs.PROGRAMS[cast(proofs.Proof, stage)][0]
    return step(
        stage,
        what,
        quoted("sh", f"{spec.paths.proofs}/{script}", *arguments),
        run_as=as_owner(spec, record),
        seconds=deadlines.COMPILE,
        lock=spec.paths.lock,
    )
