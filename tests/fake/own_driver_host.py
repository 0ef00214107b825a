"""Hosts whose driver is the distribution's own: Debian 12 with DKMS, Ubuntu with signed modules.

Versions are those of the archives in November 2026.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_host import KERNEL, LIB, WINDOWS, GpuHost

from pyinfra_gpu.facts.parse import parse
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.packages import files
from pyinfra_gpu.stacks import catalogue

DEBIAN, UBUNTU = catalogue().archives["debian"], catalogue().archives["ubuntu"]
OPEN, NEWER = "535.261.03", "535.309.01"  # bookworm's open modules; all else of bookworm-security
SIGNED = "580.178.04"
NOBLE_KERNEL, NOBLE_NEXT = "6.8.0-149-generic", "6.8.0-151-generic"
MODULES = "linux-modules-nvidia-580-server-open-"
KEY = "/usr/share/keyrings/debian-archive-keyring.gpg"
MAIN = f"/etc/apt/sources.list:deb [signed-by={KEY}] http://deb.example/debian bookworm main"
SECURITY = MAIN.replace("debian bookworm", "security bookworm-security")
RULE = "nvidia-current-open /etc/modprobe.d/nvidia.conf"
HOPPERS = [f"0000:0{n}:00.0 0x10de 0x2330 0x030200 nvidia {WINDOWS}" for n in (1, 2)]
LED = ["nvidia auto /usr/lib/nvidia/current-open -", "glx auto /usr/lib/nvidia -"]
CURRENT = f"{LIB}/nvidia/current"
ADDED = "".join(
    f"deb [signed-by={KEY}] http://deb.example/{suite} contrib non-free non-free-firmware\n"
    for suite in ("debian bookworm", "security bookworm-security")
)

_OF_DRIVER = (
    *("nvidia-open-kernel-dkms", "nvidia-open-kernel-support", "libcuda1", "libnvidia-ml1"),
    *("nvidia-smi", "nvidia-alternative", "libnvidia-cfg1", "libnvidia-ptxjitcompiler1"),
    *("libnvidia-pkcs11-openssl3", "firmware-nvidia-gsp"),
)
_APART = (
    "nvidia-persistenced 535.171.04-1~deb12u1 0 1",
    "nvidia-modprobe 535.309.01-0+deb12u1 0 1",
    "nvidia-kernel-common 20220217+3~deb12u1 0 1",
)
_SIGNED = (
    *("nvidia-headless-no-dkms-580-server-open", "nvidia-utils-580-server"),
    *("nvidia-compute-utils-580-server", "libnvidia-compute-580-server"),
    *("nvidia-kernel-common-580-server", "nvidia-kernel-source-580-server-open"),
    "libnvidia-cfg1-580-server",
)


def rows(version: str = OPEN, held: str = "1", **other: str) -> list[str]:
    """Debian's packages of the driver, some of another version; names with "_" for "-"."""
    named = {name.replace("_", "-"): value for name, value in other.items()}
    return [f"{name} {named.get(name, version)}-1 {held} 1" for name in _OF_DRIVER] + [*_APART]


def signed_rows(*kernels: str, version: str = SIGNED) -> list[str]:
    """Ubuntu's packages of the driver, with its modules for some kernels."""
    return [
        *(f"{name} {version}-0ubuntu0.24.04.1 1 1" for name in _SIGNED),
        *(f"{MODULES}{kernel} 6.8.0-149.149 0 1" for kernel in kernels),
    ]


def debian(version: str = OPEN, **changes: Any) -> GpuHost:
    """Debian 12 with its own driver, everything as declared but for what is changed."""
    host = GpuHost(
        plain={
            "driver.loaded": version,
            "driver.version_line": (
                f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release"
            ),
            "driver.on_disk": version,
            "driver.module": RULE,
            "driver.libcuda": f"{CURRENT}/libcuda.so.{version}",
            "driver.libml": f"{CURRENT}/libnvidia-ml.so.{version}",
        },
        lists={
            "gpus.device": HOPPERS,
            "nvidia.package": rows(version),
            "nvidia.source_line": [MAIN, SECURITY],
            "nvidia.alternative": LED,
            "libcuda.link": [_link(name, version) for name in ("libcuda.so", "libcuda.so.1")]
            + [_link("libnvidia-ml.so.1", version)],
            "libcuda.file": [],
            "libcuda.cache": [
                f"{name} => {LIB}/{name} => {CURRENT}/{name.removesuffix('.1')}.{version}"
                for name in ("libnvidia-ml.so.1", "libcuda.so.1", "libcuda.so")
            ],
        },
        texts={
            files.SOURCES: None,
            files.ARCHIVE: f"{files.HEADER}{ADDED}".encode(),
            files.PREFERENCES: files.preferences(535, None, None, apart=DEBIAN.apart).encode(),
        },
        keyring=None,
        data={
            "stack": "r535-cu126",
            "driver_source": "distribution",
            "cuda_toolkit": False,
            "gpu_count": 2,
            "smoke": "skip",
        },
    )
    return changed(host, **changes)


def _link(name: str, version: str) -> str:
    target = f"/etc/alternatives/nvidia--{name}-x86_64-linux-gnu"
    return f"link {LIB}/{name} => {target} => {CURRENT}/{name.removesuffix('.1')}.{version}"


def ubuntu(**changes: Any) -> GpuHost:
    """Ubuntu 24.04 with its own driver and modules, and Secure Boot."""
    host = GpuHost(
        plain={
            "system.kernel": NOBLE_KERNEL,
            "system.secure_boot": "1",
            "driver.loaded": SIGNED,
            "driver.version_line": (
                f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {SIGNED}  Release"
            ),
            "driver.on_disk": SIGNED,
            "driver.libcuda": f"{LIB}/libcuda.so.{SIGNED}",
            "driver.libml": f"{LIB}/libnvidia-ml.so.{SIGNED}",
        },
        lists={
            "system.os": ['PRETTY_NAME="Ubuntu 24.04"', 'VERSION_ID="24.04"', "ID=ubuntu"],
            "kernel.installed": [NOBLE_KERNEL],
            "kernel.headers": [f"{NOBLE_KERNEL} 0"],
            "nvidia.package": signed_rows(NOBLE_KERNEL),
            "nvidia.source_line": [
                "/etc/apt/sources.list:deb http://a.example/ubuntu noble main restricted",
                "/etc/apt/sources.list:deb http://a.example/ubuntu noble-updates main restricted",
            ],
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


def record(host: GpuHost) -> Record:
    """Return what a look at the host shows."""
    return parse(host.probe_lines())


__all__ = [
    "ADDED", "DEBIAN", "KERNEL", "LED", "MAIN", "MODULES", "NEWER", "NOBLE_KERNEL", "NOBLE_NEXT",
    "OPEN", "RULE", "SECURITY", "SIGNED", "UBUNTU", "debian", "record", "rows", "signed_rows",
    "ubuntu",
]  # fmt: skip
