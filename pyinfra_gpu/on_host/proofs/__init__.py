"""Programs that prove on a host what the stages cuda and libcuda promise.

They are compiled and run where the result counts. A proof takes a few seconds, so its result is
kept in a JSON file, keyed by a fingerprint of all that it depends on.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Literal

Proof = Literal["cuda", "libcuda"]

PROGRAMS: dict[Proof, tuple[str, ...]] = {
    "cuda": ("cuda_proof.sh", "kernel.cu"),
    "libcuda": ("libcuda_proof.sh", "linked.c", "dlopened.c"),
}
"""The files of each proof; the first is the one to run."""


@cache
def programs(proof: Proof) -> dict[str, bytes]:
    """Return the files of a proof: name -> content."""
    folder = Path(__file__).parent
    return {name: (folder / name).read_bytes() for name in PROGRAMS[proof]}


@cache
def digest(proof: Proof) -> str:
    """Return the SHA-256 of a proof's files in hexadecimal: another proof proves other things."""
    content = b"".join(
        name.encode() + b"\0" + text + b"\0" for name, text in programs(proof).items()
    )
    return hashlib.sha256(content).hexdigest()
