"""What a smoke test's pass depends on, part by part: written by the deploy, compared by `train`."""

from __future__ import annotations

import hashlib
import json


def part(value: object) -> str:
    """Return a short digest of one part."""
    canonical = json.dumps(value, sort_keys=True).encode()
    return hashlib.sha256(canonical).hexdigest()[:16]


def parts(fingerprint: str) -> dict[str, str]:
    """Return name -> digest, from "NAME:DIGEST;NAME:DIGEST"."""
    return {name: digest for name, _, digest in (x.partition(":") for x in fingerprint.split(";"))}
