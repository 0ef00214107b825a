"""Whether a proof that a host keeps still holds."""

from __future__ import annotations

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.stamps import Proof


def proven_state(text: str | Unknown | None, fingerprint: str) -> str | None:
    """Return why a proof does not hold, in a few words; None where it does.

    + text: the proof's JSON file, as the host keeps it
    + fingerprint: of the state the host is in now
    """
    if text is None:
        return "never proven here"
    if isinstance(text, Unknown):
        return f"the proof cannot be read ({text.reason})"
    proof = Proof.read(text)
    if not isinstance(proof, Proof):
        return "the proof is not readable"
    if proof.fingerprint != fingerprint:
        return "proven before something it depends on changed"
    return None
