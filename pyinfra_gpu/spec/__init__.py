"""What a host should be: every data key, and the frozen, checked HostSpec that data becomes.

`resolve(host.data.dict(), host.name)` either returns a spec or raises SpecError with one sentence
that names the host, the key, the value, what is allowed and what to do. A deploy calls
`pyinfra_gpu.compatibility.resolve`, which also refuses what cannot work.

A key is one field of its section (`driver.py`, `smoke.py`, ...): see `key.py`.
"""

from __future__ import annotations

from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.spec.cuda import CudaSpec, LibcudaSpec
from pyinfra_gpu.spec.driver import DriverSpec, Modules, Reboot, RepositorySpec
from pyinfra_gpu.spec.host import STAGES, Accelerator, HostSpec, Privilege
from pyinfra_gpu.spec.key import Key
from pyinfra_gpu.spec.paths import Paths
from pyinfra_gpu.spec.preflight import GpuSpec, PreflightSpec
from pyinfra_gpu.spec.pytorch import PytorchSpec
from pyinfra_gpu.spec.resolving import allowed_keys, check_data, resolve
from pyinfra_gpu.spec.smoke import AcrossSpec, SmokeMode, SmokeSpec
from pyinfra_gpu.spec.training import EnvironmentSpec, TrainingSpec

__all__ = [
    "STAGES",
    "Accelerator",
    "AcrossSpec",
    "CudaSpec",
    "DriverSpec",
    "EnvironmentSpec",
    "GpuSpec",
    "HostSpec",
    "Key",
    "LibcudaSpec",
    "Modules",
    "Paths",
    "PreflightSpec",
    "Privilege",
    "PytorchSpec",
    "Reboot",
    "RepositorySpec",
    "SmokeMode",
    "SmokeSpec",
    "SpecError",
    "TrainingSpec",
    "allowed_keys",
    "check_data",
    "resolve",
]
