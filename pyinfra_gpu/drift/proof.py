"""Whether a proof that a host keeps still holds, and what changed where it does not."""

from __future__ import annotations

from collections.abc import Mapping

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.stamps import Proof


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
