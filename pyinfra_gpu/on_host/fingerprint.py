"""What a smoke test's pass depends on, part by part: written by the deploy, compared by `train`."""

from __future__ import annotations

import hashlib
import json

NAMES = (
    "the test itself",
    "the boot",
    "the kernel",
    "the driver",
    "the GPUs",
    "Python",
    "torch",
    "installed packages",
    "the environment file",
    "smoke_ranks",
    "smoke_allreduce_mib",
)
"""The parts, in their order."""
_DIGITS = 16


def part(value: object) -> str:
    """Return a short digest of one part."""
    canonical = json.dumps(value, sort_keys=True).encode()
    return hashlib.sha256(canonical).hexdigest()[:_DIGITS]


def parts(fingerprint: str) -> dict[str, str] | None:
    """Return name -> digest; None for a fingerprint of another version of this program."""
    if len(fingerprint) != len(NAMES) * _DIGITS:
        return None
    return {
        name: fingerprint[index * _DIGITS : (index + 1) * _DIGITS]
        for index, name in enumerate(NAMES)
    }
