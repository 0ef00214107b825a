"""What a host runs, in few words, for reports: system, GPUs, driver, CUDA, torch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyinfra_gpu.facts.fields import Unknown, as_json
from pyinfra_gpu.stacks import catalogue

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import PciGpu, Record


def versions(record: Record) -> dict[str, Any]:
    """Return names and versions as plain data; `None` = not there, `{"unknown": reason}`.

    + driver_loaded, driver_installed, libcuda: the three versions that must be one
    + cuda: release of the declared toolkit's nvcc
    + gpu_users: processes that have a GPU's device open
    """
    installed = record.torch.distributions
    nccl = (
        []
        if isinstance(installed, Unknown)
        else [
            version
            for name, version in installed.items()
            if re.fullmatch(r"nvidia-nccl-cu\d+", name)
        ]
    )
    values = {
        "os": record.system.os_name,
        "kernel": record.system.kernel,
        "cpus": record.system.cpu_count,
        "memory_mib": record.system.ram_mib,
        "gpus": _gpus(record.gpus.devices),
        "gpu_users": record.driver.users,
        "driver_loaded": record.driver.loaded,
        "driver_modules": _flavour(record.driver.open_modules),
        "driver_installed": record.driver.on_disk,
        "libcuda": _library(record.driver.libcuda),
        "cuda": record.cuda.nvcc,
        "python": record.torch.python,
        "torch": record.torch.version,
        "nccl": nccl[0] if nccl else None,
    }
    return {name: as_json(value) for name, value in values.items()}


def _gpus(devices: tuple[PciGpu, ...] | Unknown) -> tuple[str, ...] | Unknown:
    if isinstance(devices, Unknown):
        return devices
    names = {pci_id: gpu.name for gpu in catalogue().gpus.values() for pci_id in gpu.pci_ids}
    ids = [f"{gpu.vendor}:{gpu.device}".replace("0x", "") for gpu in devices]
    return tuple(names.get(pci_id, f"NVIDIA {pci_id}") for pci_id in ids)


def _flavour(open_modules: bool | Unknown | None) -> str | Unknown | None:
    if not isinstance(open_modules, bool):
        return open_modules
    return "open" if open_modules else "proprietary"


def _library(path: str | Unknown | None) -> str | Unknown | None:
    """The version in the library's file name; the whole path where there is none."""
    if not isinstance(path, str):
        return path
    match = re.search(r"libcuda\.so\.(\d+(?:\.\d+)+)$", path)
    return match[1] if match else path
