"""What shows on a host that nvcc compiles, and that programs load the driver's library.

Programs are compiled and run where the result counts. That takes seconds, so it is noted in a file
in which state that was seen.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

Proof = Literal["cuda", "libcuda"]
_SOURCES = {"cuda": "kernel.cu", "libcuda": "libcuda.c"}


def command(proof: Proof, asked: Mapping[str, object]) -> tuple[str, ...]:
    """Return the words of the command that proves it, its programs included.

    + asked: what `prove.py` reads, but `proof` and `source`
    """
    program, source = _texts(proof)
    text = json.dumps({"proof": proof, "source": source, **asked})
    return ("/usr/bin/python3", "-I", "-S", "-c", program, text)


@cache
def _texts(proof: Proof) -> list[str]:
    folder = Path(__file__).parent
    return [(folder / name).read_text("ascii") for name in ("prove.py", _SOURCES[proof])]


@cache
def digest(proof: Proof) -> str:
    """Return the SHA-256 of a proof's programs in hexadecimal: another one proves other things."""
    return hashlib.sha256(json.dumps(_texts(proof)).encode()).hexdigest()
