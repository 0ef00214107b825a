"""A host's versions and its findings as plain data, the same in a run's report and in `check`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyinfra_gpu.drift.history import as_since
from pyinfra_gpu.facts.fields import Unknown, as_json
from pyinfra_gpu.stacks import catalogue

if TYPE_CHECKING:
    from pyinfra_gpu.drift.finding import Finding
    from pyinfra_gpu.facts.record import Record


def finding_as_json(finding: Finding) -> dict[str, Any]:
    """Return a finding, with what the package manager's log knows of it."""
    return {
        "id": finding.id.value,
        "found": finding.found,
        "expected": finding.expected,
        "effect": finding.effect,
        "action": finding.action,
        "command": finding.command,
        "since": as_since(finding.since),
    }


def versions(record: Record) -> dict[str, Any]:
    """Return names and versions; `None` = not there, `{"unknown": reason}`.

    + driver_loaded, driver_installed, libcuda: the three versions that must be one
    + cuda: release of the declared toolkit's nvcc
    + gpu_users: processes that have a GPU's device open
    """
    system, driver, torch = record.system, record.driver, record.torch
    values = {
        "os": system.os_name,
        "kernel": system.kernel,
        "cpus": system.cpu_count,
        "memory_mib": system.ram_mib,
        "gpus": _gpus(record),
        "gpu_users": driver.users,
        "driver_loaded": driver.loaded,
        "driver_modules": _flavour(driver.open_modules),
        "driver_installed": driver.on_disk,
        "libcuda": _version(driver.libcuda),
        "cuda": record.cuda.nvcc,
        "python": torch.python,
        "torch": torch.version,
        "nccl": _nccl(torch.distributions),
    }
    return {name: as_json(value) for name, value in values.items()}


def _gpus(record: Record) -> tuple[str, ...] | Unknown:
    devices = record.gpus.devices
    if isinstance(devices, Unknown):
        return devices
    names = {pci_id: gpu.name for gpu in catalogue().gpus.values() for pci_id in gpu.pci_ids}
    ids = [f"{gpu.vendor}:{gpu.device}".replace("0x", "") for gpu in devices]
    return tuple(names.get(pci_id, f"NVIDIA {pci_id}") for pci_id in ids)


def _flavour(open_modules: bool | Unknown | None) -> str | Unknown | None:
    if not isinstance(open_modules, bool):
        return open_modules
    return "open" if open_modules else "proprietary"


def _nccl(installed: Mapping[str, str] | Unknown) -> str | None:
    if isinstance(installed, Unknown):
        return None
    found = (version for name, version in installed.items() if name.startswith("nvidia-nccl-cu"))
    return next(found, None)


def _version(path: str | Unknown | None) -> str | Unknown | None:
    """Return the version in the library's file name; the whole path where there is none."""
    match = re.search(r"libcuda\.so\.(\d+(?:\.\d+)+)$", path) if isinstance(path, str) else None
    return match[1] if match else path
