"""Whether a proof that a host keeps still holds, and what changed where it does not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.stamps import Proof
from pyinfra_gpu.text import shortened, some

_LONGEST_SAID = 160  # characters of one thing that changed


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
        return "never proven here"
    if isinstance(text, Unknown):
        return f"the proof cannot be read ({text.reason})"
    proof = Proof.read(text)
    if not isinstance(proof, Proof):
        return "the proof is not readable"
    if proof.fingerprint != fingerprint:
        return f"proven before {_changed(proof.state, state or {})} changed"
    return None


def _changed(before: Mapping[str, object], now: Mapping[str, object]) -> str:
    """Name what is not as it was."""
    told = [
        f"{name} ({_difference(_parts(before[name]), _parts(value))})"
        for name, value in now.items()
        if name in before and before[name] != value
    ]
    return some(told, 2) if told else "something it depends on"


def _parts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else [str(value)]


def _difference(before: list[str], now: list[str]) -> str:
    came = some([each for each in now if each not in before], 2)
    gone = some([each for each in before if each not in now], 2)
    if came and gone:
        said = f"{came} in place of {gone}"
    else:
        said = f"{came} came" if came else f"{gone} went" if gone else "in another order"
    return shortened(said, _LONGEST_SAID)
