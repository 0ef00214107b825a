"""Running a proof on the host: as the owner; its result is kept by root."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.drift.proof import outdated
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.converge import Commands
from pyinfra_gpu.engine.privilege import as_owner, as_root
from pyinfra_gpu.engine.steps import failed, quoted, step
from pyinfra_gpu.engine.write import File, written
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import proofs
from pyinfra_gpu.spec import HostSpec

_MOST_BYTES = 65536


def run(
    stage: proofs.Proof,
    spec: HostSpec,
    record: Record,
    what: str,
    proven: Mapping[str, object],
    **asked: object,
) -> Commands:
    """Yield the commands that run a stage's proof, and keep its result.

    + what: what it proves, for the log
    + proven: the state that is, kept with the result
    + asked: what its program reads, see `on_host/proofs/prove.py`

    The programs run as the owner and leave their result in the owner's directory; root keeps a
    copy among the proofs, once it says what was asked for. An owner who is hostile can forge the
    result, and nobody else can.
    """
    reported, kind = f"{spec.paths.state}/{stage}.json", "rehearsal" if spec.rehearsal else "proof"
    words = proofs.command(stage, {"output": reported, "kind": kind, "state": proven, **asked})
    owner, lock = as_owner(spec, record), spec.paths.lock
    yield step(stage, what, quoted(*words), run_as=owner, seconds=deadlines.COMPILE, lock=lock)

    def keep(state: State, host: Host) -> bool:
        command = quoted("head", "-c", str(_MOST_BYTES), "--", reported)
        answer = ask(state, host, command, owner, seconds=deadlines.PLAIN)
        text = "\n".join(answer.stdout) if answer.ok else ""
        if wrong := outdated(text, proven):
            return failed(host, stage, f"{host.name}: what the proof left cannot be used: {wrong}")
        path = spec.paths.cuda_proof if stage == "cuda" else spec.paths.libcuda_proof
        content = f"{json.dumps(json.loads(text), indent=2)}\n".encode()
        return written(state, host, stage, File(path=path, content=content), as_root(spec))

    yield FunctionCommand(keep, (), {})
