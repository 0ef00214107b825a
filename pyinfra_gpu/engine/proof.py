"""Running a proof on the host: bring its programs, run it as the owner, keep its result as root."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.drift.proof import fingerprint, proven_state
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.privilege import as_owner, as_root
from pyinfra_gpu.engine.steps import failed, quoted, step
from pyinfra_gpu.engine.write import File, write, written
from pyinfra_gpu.on_host import proofs

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.engine.converge import Commands
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

_MOST_BYTES = 65536


def programs(stage: str, spec: HostSpec) -> Commands:
    """Put a stage's programs into the folder of proofs, which the stage "base" makes.

    + stage: "cuda" or "libcuda"
    """
    for name, content in proofs.programs(cast(proofs.Proof, stage)).items():
        file = File(path=f"{spec.paths.proofs}/{name}", content=content)
        yield write(stage, file, as_root(spec))


def run(
    stage: str,
    spec: HostSpec,
    record: Record,
    what: str,
    proven: Mapping[str, object],
    arguments: Sequence[str],
) -> Commands:
    """Yield the commands that run a stage's proof, and keep its result.

    + stage: "cuda" or "libcuda"
    + what: what it proves, for the log
    + proven: the state that is proven, which is kept with the result
    + arguments: the further ones of its shell script, see there

    The programs run as the owner and leave their result in the owner's directory; root keeps a
    copy among the proofs, once it says what was asked for. An owner who is hostile can forge the
    result, and nobody else can.
    """
    script = proofs.PROGRAMS[cast(proofs.Proof, stage)][0]
    reported = f"{spec.paths.state}/{stage}.json"
    program = f"{spec.paths.proofs}/{script}"
    words = ("sh", program, fingerprint(proven), reported, *arguments)
    yield step(
        stage,
        what,
        quoted(*words),
        run_as=as_owner(spec, record),
        seconds=deadlines.COMPILE,
        lock=spec.paths.lock,
    )
    yield FunctionCommand(_keep, (stage, spec, record, proven, reported), {})


def _keep(
    state: State,
    host: Host,
    stage: str,
    spec: HostSpec,
    record: Record,
    proven: Mapping[str, object],
    reported: str,
) -> bool:
    command = quoted("head", "-c", str(_MOST_BYTES), "--", reported)
    answer = ask(state, host, command, as_owner(spec, record), seconds=deadlines.PLAIN)
    text = "\n".join(answer.stdout) if answer.ok else None
    if wrong := proven_state(text, fingerprint(proven)):
        return failed(host, stage, f"{host.name}: what the proof left cannot be used: {wrong}")
    path = spec.paths.cuda_proof if stage == "cuda" else spec.paths.libcuda_proof
    # A later look tells by it what changed, which a digest does not.
    kept = {**json.loads(text or ""), "state": proven}
    file = File(path=path, content=f"{json.dumps(kept, indent=2)}\n".encode())
    return written(state, host, stage, file, as_root(spec))
