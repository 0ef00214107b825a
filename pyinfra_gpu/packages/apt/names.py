"""Which packages are the driver, by their names and versions."""

from __future__ import annotations

import re

from pyinfra_gpu.packages.apt.versions import driver_version

LABEL = "NVIDIA CUDA"
"""What NVIDIA's repository calls itself in its Release file; a mirror has to keep it."""

DRIVER = (
    *("cuda-drivers*", "firmware-nvidia-*", "libcuda1", "libcudadebugger1", "libegl-nvidia*"),
    *("libgl1-nvidia*", "libgles-nvidia*", "libglx-nvidia*", "libnvcuvid1", "libnvoptix1"),
    *("libnvidia-allocator*", "libnvidia-api*", "libnvidia-cfg*", "libnvidia-common*"),
    *("libnvidia-compute*", "libnvidia-decode*", "libnvidia-eglcore*", "libnvidia-encode*"),
    *("libnvidia-extra*", "libnvidia-fbc*", "libnvidia-gl*", "libnvidia-gpucomp*"),
    *("libnvidia-ml*", "libnvidia-ngx*", "libnvidia-nscq*", "libnvidia-nvvm*"),
    *("libnvidia-opticalflow*", "libnvidia-pkcs11*", "libnvidia-present*"),
    *("libnvidia-ptxjitcompiler*", "libnvidia-rtcore*", "libnvidia-sandboxutils*"),
    *("libnvidia-vksc*", "libnvsdm*", "libxnvctrl*"),
    *("nvidia-compute-utils*", "nvidia-dkms*", "nvidia-driver", "nvidia-driver-[0-9]*"),
    *("nvidia-driver-bin", "nvidia-driver-cuda*", "nvidia-driver-full", "nvidia-driver-libs*"),
    *("nvidia-driver-open", "nvidia-egl-icd", "nvidia-fabricmanager*", "nvidia-firmware*"),
    *("nvidia-headless*", "nvidia-imex*", "nvidia-kernel-dkms", "nvidia-kernel-open*"),
    *("nvidia-kernel-source*", "nvidia-kernel-support", "nvidia-libopencl*", "nvidia-modprobe"),
    *("nvidia-open*", "nvidia-opencl-icd", "nvidia-persistenced", "nvidia-settings"),
    *("nvidia-smi", "nvidia-utils*", "nvidia-vdpau-driver", "nvidia-vulkan-icd"),
    *("nvidia-xconfig", "xserver-xorg-video-nvidia*"),
)
"""The driver's packages, companions included, in both ways NVIDIA names them: as apt's globs.

Helpers that a distribution ships for any driver (nvidia-kernel-common, glx-alternative-nvidia,
libnvidia-egl-wayland1) and the container tools are not among them, and stay free.
"""

LIBRARIES = ("libcuda1", "libnvidia-ml1", "libnvidia-compute*")
"""The packages that hold the driver's own libraries, the most telling first."""

_PIN = re.compile(r"nvidia-driver-pinning-.+")
_NVIDIA = re.compile(
    r"(lib)?nvidia.*|libcuda.*|cuda.*|firmware-nvidia.*|linux-(modules|objects|signatures)-nvidia.*"
    r"|xserver-xorg-video-nvidia.*|libxnvctrl.*|libnvsdm.*|libnvoptix.*|libnvcuvid.*"
    r"|lib(egl|gl1|gles|glx)-nvidia.*"
)
_OF_ONE_VERSION = re.compile(r".*-\d{3}\.\d{2,3}(\.\d{2})?")
_KERNEL = re.compile(
    r"(linux-image|linux-modules|linux-generic|linux-virtual|linux-signed).*|linux-(amd64|arm64)"
)
_KERNEL_MODULES_OF_OURS = re.compile(r"linux-(modules|objects|signatures)-nvidia.*")


def plain(name: str) -> str:
    """Return a package's name without its architecture."""
    return name.partition(":")[0]


def is_pin(name: str) -> bool:
    """Tell whether it is a package that pins the driver to a branch or version."""
    return _PIN.fullmatch(plain(name)) is not None


def is_driver(name: str, version: str) -> bool:
    """Tell whether a package is part of the driver: named as one, with a driver's version.

    The name alone would catch NVIDIA's container tools, the version alone anything.
    cuda-compat carries a driver's version and is a part of the toolkit. A package with a version
    in its name (nvidia-firmware-580-580.95.05) never moves: the next version brings another one.
    """
    name = plain(name)
    if is_pin(name) or name.startswith("cuda-compat") or _OF_ONE_VERSION.fullmatch(name):
        return False
    return _NVIDIA.fullmatch(name) is not None and driver_version(version) is not None


def is_nvidia(name: str) -> bool:
    """Tell whether a package has one of NVIDIA's names: driver, toolkit, or around them."""
    return _NVIDIA.fullmatch(plain(name)) is not None


def is_kernel(name: str) -> bool:
    """Tell whether a package is a kernel, or pulls one; NVIDIA's modules for one are not."""
    name = plain(name)
    return _KERNEL.fullmatch(name) is not None and not _KERNEL_MODULES_OF_OURS.fullmatch(name)
