"""Running a proof on the host: as the owner; what it was seen in is noted by root."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.converge import Commands
from pyinfra_gpu.engine.privilege import as_owner, as_root
from pyinfra_gpu.engine.steps import quoted, step
from pyinfra_gpu.engine.write import File, write
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import proofs
from pyinfra_gpu.spec import HostSpec


def run(
    stage: proofs.Proof,
    spec: HostSpec,
    record: Record,
    what: str,
    state: Mapping[str, object],
    **asked: object,
) -> Commands:
    """Yield the commands that run a stage's proof, and note that it holds.

    + what: what it proves, for the log
    + state: that it is seen in
    + asked: what its program reads, see `on_host/proofs/prove.py`

    An owner who is hostile can have it pass, and nobody else can.
    """
    words = proofs.command(stage, {"work": f"{spec.paths.state}/{stage}.work", **asked})
    owner, seconds, lock = as_owner(spec, record), deadlines.COMPILE, spec.paths.lock
    yield step(stage, what, quoted(*words), run_as=owner, seconds=seconds, lock=lock)
    content = json.dumps({"schema_version": 1, "status": "pass", "state": state}, indent=2)
    path = spec.paths.cuda_proof if stage == "cuda" else spec.paths.libcuda_proof
    yield write(stage, File(path=path, content=f"{content}\n".encode()), as_root(spec))
