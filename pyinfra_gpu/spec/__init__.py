"""What a host should be: every data key, and the frozen, checked HostSpec that data becomes.

`resolve(host.data.dict(), host.name)` either returns a spec or raises SpecError with one sentence
that names the host, the key, the value, what is allowed and what to do. A deploy calls
`pyinfra_gpu.compatibility.resolve`, which also refuses what cannot work.

A key is one field of its section in `model.py`.
"""

from __future__ import annotations

from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.spec.model import (
    KEYS,
    AcrossSpec,
    HostSpec,
    Modules,
    TrainingSpec,
)
from pyinfra_gpu.spec.paths import Paths
from pyinfra_gpu.spec.resolving import resolve

__all__ = [
    "KEYS",
    "AcrossSpec",
    "HostSpec",
    "Modules",
    "Paths",
    "SpecError",
    "TrainingSpec",
    "resolve",
]
