"""The one host of tests/real with the CUDA build of torch; its GPUs are simulated."""

import os
from pathlib import Path

from pyinfra_gpu_rehearsal import Lab, inventory

_directory = Path(os.environ["PYINFRA_GPU_REHEARSAL"])
_DATA = {
    "rehearsal": True,
    "stack": "r580-cu130",
    "pytorch_index_url": Lab(_directory).index_url,
    "pytorch_extra_index_url": None,
    "pytorch_lock": "ignore",  # what the lab serves is what this machine's indexes have
    "cuda_toolkit": False,
    "preflight_min_ram_gib": 2,
    "smoke_deadline_s": 600,
}
gpu = [(name, {**data, **_DATA}) for name, data in inventory(_directory)]
