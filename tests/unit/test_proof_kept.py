"""What root keeps of a proof: what the owner's program reported, and the state that was proven."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from proven_host import proven_host

from pyinfra_gpu.drift import libcuda
from pyinfra_gpu.engine import proof
from pyinfra_gpu.engine.ask import Answer
from pyinfra_gpu.engine.write import File


def test_it_is_kept_with_the_state_that_was_asked_for_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = proven_host()
    spec, record = host.spec(), host.record()
    proven = libcuda.state(spec, record)
    reported = {
        "status": "pass",
        "library": "/x",
        "state": proven,
    }
    lines = tuple(json.dumps(reported, indent=2).splitlines())
    kept: list[File] = []

    def written(*arguments: Any) -> bool:
        kept.append(arguments[3])
        return True

    monkeypatch.setattr(proof, "ask", lambda *_, **__: Answer(ok=True, stdout=lines, lines=lines))
    monkeypatch.setattr(proof, "written", written)
    monkeypatch.setattr(proof, "failed", lambda *_: False)
    forged = {**proven, "gcc": "forged"}
    for state, right in ((forged, False), (proven, True)):
        _, keep = proof.run("libcuda", spec, record, "prove it", state)
        assert keep.function(None, SimpleNamespace(name="ws1")) is right
        assert len(kept) == right
    (file,) = kept
    assert file.path == spec.paths.libcuda_proof
    assert json.loads(file.content) == reported
    text = file.content.decode()
    (finding,) = libcuda.judge(
        spec, proven_host(told={"libcuda.proof": text, "cuda.gcc": "13.1.0"}).record()
    )
    assert finding.found.endswith(": gcc changed since the last proof")
