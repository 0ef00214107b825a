"""This machine, without root: everything below your own data directory.

    pyinfra inventories/local.py deploy.py

The stack follows what is on the PCI bus: a GPU stack where there is an NVIDIA GPU, otherwise the
CPU stack, whose smoke test runs over gloo and is labelled so in every output.
"""

import os
from pathlib import Path

_data_home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
_gpus = [
    device
    for device in Path("/sys/bus/pci/devices").glob("*")
    if (device / "vendor").read_text().strip() == "0x10de"
    and (device / "class").read_text().startswith("0x03")
]

local = [
    (
        "@local",
        {
            "privilege": "none",
            "prefix": f"{_data_home}/pyinfra-gpu",
            "stack": "r580-cu130" if _gpus else "cpu-torch2.13",
            "gpu_count": len(_gpus),
            # Two ranks need two GPUs or none; one GPU cannot prove a collective.
            **({} if len(_gpus) >= 2 or not _gpus else {"smoke": "skip"}),
        },
    )
]
