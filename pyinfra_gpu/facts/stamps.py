"""What a run of ours notes on a host beside its work, as types: proofs, and what was installed."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict

from pyinfra_gpu.facts import document
from pyinfra_gpu.facts.fields import Unknown


class _Note(BaseModel):
    """A document of ours; what else stands in it does not come in."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    @classmethod
    def read(cls, text: str | Unknown | None) -> Self | Unknown | None:
        """Return what a host wrote; `Unknown` with the reason where it is no such note."""
        return document.read(cls, text)


class Proof(_Note):
    """That the toolkit, or the driver's library, was seen to work.

    + state: what that depends on, as it was then
    """

    status: Literal["pass"]
    state: dict[str, object] = {}


class TrainingStamp(_Note):
    """What the requirements of the training repository installed: name -> version."""

    requirements_sha256: str | None
    distributions: dict[str, str]
