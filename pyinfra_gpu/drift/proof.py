"""Whether a proof that a host keeps still holds, and what changed where it does not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.stamps import Proof


def fingerprint(state: Mapping[str, object]) -> str:
    """Return the digest of what a proof depends on: what it is called -> what it is."""
    return hashlib.sha256(json.dumps(list(state.values())).encode()).hexdigest()


def proven_state(
    text: str | Unknown | None, fingerprint: str, state: Mapping[str, object] | None = None
) -> str | None:
    """Return why a proof does not hold, in a few words; None where it does.

    + text: the proof's JSON file, as the host keeps it
    + fingerprint: of the state the host is in now
    + state: that state itself, to name what changed since
    """
    if text is None:
        return "never tried on this host"
    if isinstance(text, Unknown):
        return f"the proof cannot be read ({text.reason})"
    proof = Proof.read(text)
    if not isinstance(proof, Proof):
        return "the proof is not readable"
    if proof.fingerprint != fingerprint:
        return f"{_changed(proof.state, state or {})} changed since the last proof"
    return None


def _changed(before: Mapping[str, object], now: Mapping[str, object]) -> str:
    """Name what is not as it was."""
    told = [name for name, value in now.items() if name in before and before[name] != value]
    return " and ".join(told) if told else "something it depends on"
