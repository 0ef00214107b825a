"""The one host of tests/real, whose driver is its distribution's own."""

import os
from pathlib import Path

from pyinfra_gpu_rehearsal import inventory

_DATA = {
    "rehearsal": True,
    "stack": "r535-cu126",
    "driver_source": "distribution",
    "driver_reboot": "never",
    "gpu_model": "H200",
    "gpu_count": 2,
    "cuda_toolkit": False,
    "preflight_min_disk_gib": 4,
    "preflight_min_ram_gib": 2,
    "smoke": "skip",
}
gpu = [
    (name, {**data, **_DATA}) for name, data in inventory(Path(os.environ["PYINFRA_GPU_REHEARSAL"]))
]
