"""The throwaway hosts that are up. Make them with: pyinfra-gpu rehearsal up 2"""

import json
import os
from pathlib import Path

from pyinfra.api.exceptions import InventoryError

from pyinfra_gpu_rehearsal import Lab, LabError, inventory

# The tests make their own hosts elsewhere and say so here.
_beside = Path(__file__).resolve().parent.parent / ".rehearsal"
_presets = Path(__file__).resolve().parent.parent / "examples/presets/tiny-gpt.json"
_directory = Path(os.environ.get("PYINFRA_GPU_REHEARSAL", _beside))

try:
    _lab = Lab(_directory)
    _data = {
        "rehearsal": True,
        "pytorch_index_url": _lab.index_url,
        "pytorch_extra_index_url": None,
        "pytorch_lock": "ignore",  # what the lab serves is made anew on each machine
        "training_repo": _lab.git_url,
        "training_commit": _lab.git_commit,
        "training_requirements": "pyproject.toml",
        "training_presets": json.loads(_presets.read_text(encoding="utf-8")),
    }
    _hosts = [(name, {**_data, **data}) for name, data in inventory(_directory)]
    # A simulated GPU runs no CUDA: those hosts get everything real but torch's CUDA build.
    _no_cuda = {
        "stack": "r580-cu130",
        "pytorch_version": "2.13.0",
        "pytorch_build": "cpu",
        "preflight_min_disk_gib": 4,  # CUDA's wheels would be the other 11
        "preflight_min_ram_gib": 2,
    }
    # A group's name is its policy: group_data/gpu.py and group_data/cpu.py
    gpu = [(name, {**_no_cuda, **data}) for name, data in _hosts if "gpu_count" in data]
    cpu = [(name, data) for name, data in _hosts if "gpu_count" not in data]
except LabError as error:
    raise InventoryError(str(error)) from None
