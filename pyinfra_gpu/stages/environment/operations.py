"""The project's environment file and its ``torchrun`` wrapper."""

from __future__ import annotations

from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.converge import Commands, converging
from pyinfra_gpu.engine.privilege import as_root, made_for
from pyinfra_gpu.engine.steps import step
from pyinfra_gpu.engine.write import write
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import program
from pyinfra_gpu.spec import HostSpec, env_file
from pyinfra_gpu.stages.environment import findings
from pyinfra_gpu.stages.finding import Findings, Id
from pyinfra_gpu.stages.rules import known

STAGE = findings.STAGE
_USES = ("files/root_only.sh", "files/set_aside.sh")


@converging(findings, repairs=Id.of(STAGE))
def project_files(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the environment file and the wrapper have exactly the declared content.

    Each is written whole. What stood there without our header, or was not a file, is kept next
    to it as ``NAME.before-pyinfra-gpu``, and the run says so. An environment file with variables
    of the user's is the owner's alone to read.
    """
    del found
    for file in findings.wrong(spec, record):
        if known(record.layout.entry(file.path)).kind != "absent":
            words = (file.path, made_for(spec, record), env_file.HEADER)
            keep = program("files/keep.sh", *words, uses=_USES)
            what, seconds = f"keep what is not ours at {file.path}", deadlines.PLAIN
            yield step(STAGE, what, keep, run_as=as_root(spec), seconds=seconds)
        yield write(STAGE, file, as_root(spec))
