"""A host's versions and its findings as plain data, the same in a run's report and in `check`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyinfra_gpu.drift.history import as_since
from pyinfra_gpu.facts.fields import Unknown, as_json
from pyinfra_gpu.stacks import catalogue

if TYPE_CHECKING:
    from pyinfra_gpu.drift.finding import Finding
    from pyinfra_gpu.facts.record import Record


def finding_as_json(finding: Finding) -> dict[str, Any]:
    """Return a finding, with what the package manager's log knows of it."""
    names = ("found", "expected", "effect", "action", "command")
    told = {name: getattr(finding, name) for name in names}
    return {"id": finding.id.value, **told, "since": as_since(finding.since)}


def versions(record: Record) -> dict[str, Any]:
    """Return names and versions; `None` = not there, `{"unknown": reason}`.

    + driver_loaded, driver_installed, libcuda: the three versions that must be one
    + cuda: release of the declared toolkit's nvcc
    + gpu_users: processes that have a GPU's device open
    """
    system, driver, torch = record.system, record.driver, record.torch
    modules, libcuda, installed = driver.open_modules, driver.libcuda, torch.distributions
    if isinstance(libcuda, str):
        libcuda = re.sub(r".*libcuda\.so\.(\d+(?:\.\d+)+)$", r"\1", libcuda)
    packages = {} if isinstance(installed, Unknown) else installed
    values = {
        "os": system.os_name,
        "kernel": system.kernel,
        "cpus": system.cpu_count,
        "memory_mib": system.ram_mib,
        "gpus": _gpus(record),
        "gpu_users": driver.users,
        "driver_loaded": driver.loaded,
        "driver_modules": {"True": "open", "False": "proprietary"}.get(str(modules), modules),
        "driver_installed": driver.on_disk,
        "libcuda": libcuda,
        "cuda": record.cuda.nvcc,
        "python": torch.python,
        "torch": torch.version,
        "nccl": next((packages[n] for n in packages if n.startswith("nvidia-nccl-cu")), None),
    }
    return {name: as_json(value) for name, value in values.items()}


def _gpus(record: Record) -> tuple[str, ...] | Unknown:
    devices = record.gpus.devices
    if isinstance(devices, Unknown):
        return devices
    names = {pci_id: gpu.name for gpu in catalogue().gpus.values() for pci_id in gpu.pci_ids}
    ids = [f"{gpu.vendor}:{gpu.device}".replace("0x", "") for gpu in devices]
    return tuple(names.get(pci_id, f"NVIDIA {pci_id}") for pci_id in ids)
