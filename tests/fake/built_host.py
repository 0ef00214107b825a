"""Fake hosts whose torch is built from source."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from fake_host import DATA, FakeHost

from pyinfra_gpu.stages.pytorch_build import findings as pytorch_build

TORCH_COMMIT = "5c48869085840e9cbb80e2a4d2b5e5d7c3a1f602"
SOURCE: dict[str, object] = {
    **DATA,
    "pytorch_source": "source",
    "pytorch_git_url": "https://github.com/pytorch/pytorch",
    "pytorch_commit": TORCH_COMMIT,
}
BUILDING = "compile at work"


def state_of(fingerprint: str, state: str) -> dict[str, Any]:
    """What is told of a build: "compile at work", "compile ended"."""
    phase, _, words = state.partition(" ")
    return {"fingerprint": fingerprint, "phase": phase, "running": words == "at work"}


def built_host(
    *,
    stamp: dict[str, Any] | None = None,
    wheel: dict[str, Any] | None = None,
    state: str | None = None,
    name: str = "ws1",
    data: dict[str, object] | None = None,
    **changes: Any,
) -> FakeHost:
    """Return a host that declares a build.

    + stamp, wheel: a manifest's changes, None for no such file
    + state: of the last build of it, such as "compile ended"
    """
    host = FakeHost(name=name, data={**SOURCE, **(data or {})}, **changes)
    host = replace(host, reported={"torch.git_version": TORCH_COMMIT, **host.reported})
    spec, record = host.spec(), host.record()
    about = {
        "fingerprint": pytorch_build.fingerprint(spec, record),
        "ingredients": pytorch_build.ingredients(spec, record),
    }
    documents = {
        "build.stamp": None if stamp is None else json.dumps({**about, **_MANIFEST, **stamp}),
        "build.wheel": None if wheel is None else json.dumps({**about, **_MANIFEST, **wheel}),
        "build.state": state and state_of(str(about["fingerprint"]), state),
    }
    return replace(host, reported={**documents, **host.reported})


_MANIFEST: dict[str, Any] = {
    "file": "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl",
    "sha256": "ab" * 32,
    "size": 123456789,
    "proven": {},
}
