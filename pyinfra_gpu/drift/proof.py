"""Whether a proof that a host keeps still holds."""

from __future__ import annotations

import json

from pyinfra_gpu.facts.fields import Unknown


def proven_state(text: str | Unknown | None, fingerprint: str) -> str | None:
    """Return why a proof does not hold, in a few words; None where it does.

    + text: the proof's JSON file, as the host keeps it
    + fingerprint: of the state the host is in now
    """
    if text is None:
        return "never proven here"
    if isinstance(text, Unknown):
        return f"the proof cannot be read ({text.reason})"
    try:
        proof = json.loads(text)
    except ValueError:
        return "the proof is not readable"
    if not isinstance(proof, dict) or proof.get("status") != "pass":
        return "the proof is not readable"
    if proof.get("fingerprint") != fingerprint:
        return "proven before something it depends on changed"
    return None
