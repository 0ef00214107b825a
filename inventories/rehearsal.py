"""The throwaway hosts that are up. Make them with: pyinfra-gpu rehearsal up 2"""

import os
from pathlib import Path

from pyinfra.api.exceptions import InventoryError

from pyinfra_gpu.rehearsal import Lab, LabError, inventory

# The tests make their own hosts elsewhere and say so here.
_beside = Path(__file__).resolve().parent.parent / ".rehearsal"
_directory = Path(os.environ.get("PYINFRA_GPU_REHEARSAL", _beside))

try:
    _lab = Lab(_directory)
    _data = {
        "rehearsal": True,
        "pytorch_index_url": _lab.index_url,
        "pytorch_extra_index_url": None,
        "training_repo": _lab.git_url,
        "training_commit": _lab.git_commit,
        "training_requirements": "pyproject.toml",
    }
    # The group's name is its policy: group_data/cpu.py
    cpu = [(name, {**_data, **data}) for name, data in inventory(_directory)]
except LabError as error:
    raise InventoryError(str(error)) from None
