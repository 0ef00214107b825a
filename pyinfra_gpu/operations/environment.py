"""The project's environment file and its ``torchrun`` wrapper."""

from __future__ import annotations

from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.drift import environment as drift
from pyinfra_gpu.drift.finding import Findings, Id
from pyinfra_gpu.drift.rules import known
from pyinfra_gpu.engine import deadlines, journal
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.converge import Commands, converging
from pyinfra_gpu.engine.privilege import as_owner, as_root, guard
from pyinfra_gpu.engine.steps import failed, quoted
from pyinfra_gpu.engine.write import write
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import program
from pyinfra_gpu.spec import HostSpec, env_file

STAGE = drift.STAGE


@converging(drift, repairs=Id.of(STAGE))
def project_files(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the environment file and the wrapper have exactly the declared content.

    Each is written whole. What stood there without our header, or was not a file, is kept next
    to it as ``NAME.before-pyinfra-gpu``. An environment file with variables of the user's is the
    owner's alone to read.
    """
    del found
    for file in drift.wrong(spec, record):
        kind = known(record.layout.entry(file.path)).kind
        if kind != "absent":
            yield FunctionCommand(_keep_foreign, (spec, record, file.path, kind), {})
        yield write(STAGE, file, as_root(spec))


def _keep_foreign(
    state: State, host: Host, spec: HostSpec, record: Record, path: str, kind: str
) -> bool:
    """Set aside what is not ours, once; an edited file of ours is simply replaced.

    Read as the owner, who may have put it there, and moved as root, whose the directory is.
    """
    if kind == "file":
        ours = f"head -c 65536 -- {quoted(path)} | grep -qxF {quoted(env_file.HEADER)}"
        if ask(state, host, ours, as_owner(spec, record), seconds=deadlines.PLAIN).ok:
            return True
    uses = ("files/root_only.sh", "files/set_aside.sh")
    command = program("files/keep.sh", path, guard(as_root(spec)), uses=uses)
    answer = ask(state, host, command, as_root(spec), seconds=deadlines.PLAIN)
    if not answer.ok:
        why = answer.lines[-1] if answer.lines else "the command said nothing"
        return failed(host, STAGE, f"{host.name}: {path} cannot be set aside: {why}")
    journal.warn(STAGE, f"{spec.host}: what stood at {path} is kept as {answer.stdout[-1]}")
    return True
