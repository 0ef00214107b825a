"""The smoke test as it travels: its programs, and beside them what this project knows of GPUs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cache

from pyinfra_gpu import on_host
from pyinfra_gpu.stacks import Catalogue, catalogue


@cache
def smoke_bundle() -> bytes:
    """Return the smoke test as a zipapp; the same sources and data give the same bytes, always.

    Raises SpecError as `catalogue` does.
    """
    kinds = json.dumps([*gpu_kinds(catalogue())], indent=1, sort_keys=True)
    return on_host.smoke_bundle(f"{kinds}\n".encode("ascii"))


@cache
def smoke_digest() -> str:
    """Return the SHA-256 of the smoke test's zipapp in hexadecimal; other data give another one."""
    return hashlib.sha256(smoke_bundle()).hexdigest()


def gpu_kinds(known: Catalogue) -> Iterator[Mapping[str, object]]:
    """Yield what a sound GPU of each kind shows, in the words of `on_host.smoke.gpus`."""
    for gpu in known.gpus.values():
        for figures in gpu.figures:
            bounds = known.speed_bounds[figures.bounds]
            yield {
                "pattern": figures.pattern,
                "bf16_tflops": figures.bf16_tflops,
                "memory_gb_s": figures.memory_gb_s,
                "warn": bounds.warn,
                "fail": bounds.fail,
                "source": figures.source,
            }
