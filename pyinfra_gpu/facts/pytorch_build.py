"""A build of torch from source: how far it is, which wheel it left, and which is installed."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from pyinfra_gpu.facts import document
from pyinfra_gpu.facts.fields import Unknown

_Text = Annotated[str, Field(max_length=2000)]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_File = Annotated[str, Field(pattern=r"^torch-[A-Za-z0-9_.+-]{1,150}\.whl$")]


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    @classmethod
    def read(cls, text: str | Unknown | None) -> Self | Unknown | None:
        """Return what a host wrote; `Unknown` with the reason where it is no such document."""
        return document.read(cls, text)


class BuildFailure(_Document):
    """Why a build stopped: a sentence, and what a program printed, the first error first."""

    sentence: _Text
    lines: list[_Text] = []

    def __str__(self) -> str:
        return ": ".join([self.sentence, *self.lines[:1]])


class BuildState(_Document):
    """How far a build is, as the program on the host keeps it in state.json.

    + fingerprint: of what is declared for it; boot: in which boot of the host it was at work
    """

    fingerprint: _Digest
    boot: _Text
    phase: Literal["plan", "fetch", "requirements", "configure", "compile", "wheel", "prove"]
    error: BuildFailure | None = None


class Manifest(_Document):
    """What a wheel is that was built and proven, as wheel.json beside it says.

    + ingredients: what its fingerprint is made of, by name
    + observed: what else went into it; proven: what was tried of it
    """

    fingerprint: _Digest
    ingredients: dict[str, Any]
    file: _File
    sha256: _Digest
    size: Annotated[int, Field(ge=0)]
    built: _Text
    stand_in: bool
    observed: dict[str, Any]
    proven: dict[str, Any]
