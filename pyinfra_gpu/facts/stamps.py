"""What a run of ours notes on a host beside its work, as types: proofs, and what was installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from pyinfra_gpu.facts.document import Note
from pyinfra_gpu.facts.fields import Unknown


class Proof(Note):
    """That the toolkit, or the driver's library, was seen to work.

    + state: what that depends on, as it was then
    """

    status: Literal["pass"]
    state: dict[str, object] = Field(default={})


def outdated(text: str | Unknown | None, state: Mapping[str, object]) -> str | None:
    """Return why a proof does not hold, in a few words; None where it does.

    + text: the proof's JSON file, as the host keeps it
    + state: what it depends on, as it is now: what it is called -> what it is
    """
    if text is None:
        return "never tried on this host"
    if isinstance(text, Unknown):
        return f"the proof cannot be read ({text.reason})"
    proof = Proof.read(text)
    if not isinstance(proof, Proof):
        return "the proof is not readable"
    if proof.state == state:
        return None
    changed = [name for name, now in state.items() if proof.state.get(name) != now]
    return f"{' and '.join(changed) or 'something it depends on'} changed since the last proof"


class TrainingStamp(Note):
    """What the requirements of the training repository installed: name -> version."""

    requirements_sha256: str | None
    distributions: dict[str, str]
