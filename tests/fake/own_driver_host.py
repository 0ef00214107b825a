"""A host whose driver is Ubuntu's own, with signed modules.

Versions are those of the archive in November 2026.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_host import LIB, GpuHost

from pyinfra_gpu.packages import files
from pyinfra_gpu.stacks import catalogue

UBUNTU = catalogue().archives["ubuntu"]
SIGNED = "580.178.04"
NOBLE_KERNEL, NOBLE_NEXT = "6.8.0-149-generic", "6.8.0-151-generic"
MODULES = "linux-modules-nvidia-580-server-open-"
_SIGNED = (
    *("nvidia-headless-no-dkms-580-server-open", "nvidia-utils-580-server"),
    *("nvidia-compute-utils-580-server", "libnvidia-compute-580-server"),
    *("nvidia-kernel-common-580-server", "nvidia-kernel-source-580-server-open"),
    "libnvidia-cfg1-580-server",
)


def signed_rows(*kernels: str, version: str = SIGNED) -> list[str]:
    """Ubuntu's packages of the driver, with its modules for some kernels."""
    return [
        *(f"{name} {version}-0ubuntu0.24.04.1 1 1" for name in _SIGNED),
        *(f"{MODULES}{kernel} 6.8.0-149.149 0 1" for kernel in kernels),
    ]


def ubuntu(**changes: Any) -> GpuHost:
    """Ubuntu 24.04 with its own driver and modules, and Secure Boot."""
    host = GpuHost(
        reported={
            "system.kernel": NOBLE_KERNEL,
            "system.secure_boot": True,
            "driver.loaded": SIGNED,
            "driver.open_modules": True,
            "driver.on_disk": SIGNED,
            "driver.libcuda": f"{LIB}/libcuda.so.{SIGNED}",
            "driver.libml": f"{LIB}/libnvidia-ml.so.{SIGNED}",
            "system.os_name": "Ubuntu 24.04",
            "system.os_version": "24.04",
            "system.os_id": "ubuntu",
            "kernel.installed": [NOBLE_KERNEL],
            "kernel.headers": {NOBLE_KERNEL: False},
            "nvidia.packages": signed_rows(NOBLE_KERNEL),
            "nvidia.sources": [],
        },
        texts={
            files.SOURCES: None,
            files.PREFERENCES: files.preferences(580, None, None, apart=UBUNTU.apart).encode(),
            files.UNATTENDED: files.unattended(with_kernels=True).encode(),
        },
        keyring=None,
        data={
            "stack": "r580-cu130",
            "driver_source": "distribution",
            "cuda_toolkit": False,
            "gpu_model": "RTX 5090",
            "gpu_count": 2,
            "smoke": "skip",
        },
    )
    return changed(host, **changes)


def changed(host: GpuHost, **changes: Any) -> GpuHost:
    """Return the host with entries of its tables replaced."""
    merged = {
        key: {**getattr(host, key), **value} if isinstance(value, dict) else value
        for key, value in changes.items()
    }
    return replace(host, **merged)
