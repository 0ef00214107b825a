"""What a run of ours notes on a host beside its work, as types: proofs, and what was installed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pyinfra_gpu.facts.document import Note


class Proof(Note):
    """That the toolkit, or the driver's library, was seen to work.

    + state: what that depends on, as it was then
    """

    status: Literal["pass"]
    state: dict[str, object] = Field(default={})


class TrainingStamp(Note):
    """What the requirements of the training repository installed: name -> version."""

    requirements_sha256: str | None
    distributions: dict[str, str]
