"""A build of torch from source: how far it is, which wheel it left, and which is installed."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from pyinfra_gpu.facts.document import Note

_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_File = Annotated[str, Field(pattern=r"^torch-[A-Za-z0-9_.+-]{1,150}\.whl$")]


class BuildState(Note):
    """The last build on a host.

    + fingerprint: of what is declared for it; phase: in which it is, or ended
    """

    fingerprint: _Digest
    phase: Annotated[str, Field(pattern=r"^[a-z]{1,12}$")]
    running: bool


class Wheel(Note):
    """A wheel that was built on a host and proven there, as wheel.json beside it says."""

    fingerprint: _Digest
    file: _File
    sha256: _Digest
    size: Annotated[int, Field(ge=0)]


class Built(Note):
    """The build that is installed.

    + ingredients: what its fingerprint is made of, by name
    """

    fingerprint: _Digest
    ingredients: dict[str, Any]
