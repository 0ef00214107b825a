"""The text of our apt files: where NVIDIA's packages come from, and what holds them still."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from pyinfra_gpu.on_host.probe.apt import NVIDIAS
from pyinfra_gpu.packages.names import LABEL, SHARED
from pyinfra_gpu.spec.system_files import HEADER, KEYRING

SOURCES = "/etc/apt/sources.list.d/pyinfra-gpu-nvidia.list"
# Before `nvidia-driver-pin`, the file of NVIDIA's own pin packages: apt reads them by name, and the
# first record that matches counts. That one takes a driver of Ubuntu's archive just as gladly.
PREFERENCES = "/etc/apt/preferences.d/00pyinfra-gpu-nvidia"
UNATTENDED = "/etc/apt/apt.conf.d/52pyinfra-gpu-unattended-upgrades"
ALL = (SOURCES, PREFERENCES, UNATTENDED)

DRIVER = (
    *("cuda-drivers*", "firmware-nvidia-*", "libcuda1", "libcudadebugger1", "libegl-nvidia*"),
    *("libgl1-nvidia*", "libgles-nvidia*", "libglx-nvidia*", "libnvcuvid1", "libnvoptix1"),
    *("libnvidia-[!ce]*", "libnvidia-cfg*", "libnvidia-common*", "libnvidia-compute*"),
    *("libnvidia-eglcore*", "libnvidia-encode*", "libnvidia-extra*", "libnvsdm*", "libxnvctrl*"),
    *("nvidia-compute-utils*", "nvidia-dkms*", "nvidia-driver", "nvidia-driver-[0-9]*"),
    *("nvidia-driver-bin", "nvidia-driver-cuda*", "nvidia-driver-full", "nvidia-driver-libs*"),
    *("nvidia-driver-open", "nvidia-egl-icd", "nvidia-fabricmanager*", "nvidia-firmware*"),
    *("nvidia-headless*", "nvidia-imex*", "nvidia-kernel-common-[0-9]*", "nvidia-kernel-dkms"),
    *("nvidia-kernel-open*", "nvidia-kernel-source*", "nvidia-kernel-support"),
    *("nvidia-libopencl*", "nvidia-modprobe", "nvidia-open*", "nvidia-opencl-icd"),
    *("nvidia-persistenced", "nvidia-powerd", "nvidia-settings"),
    *("nvidia-smi", "nvidia-utils*", "nvidia-vdpau-driver", "nvidia-vulkan-icd"),
    *("nvidia-xconfig", "xserver-xorg-video-nvidia*"),
)
"""The driver's packages, companions included, in both ways NVIDIA names them: as apt's globs.

Helpers that a distribution ships for any driver (glx-alternative-nvidia, libnvidia-egl-wayland1)
and the container tools (libnvidia-container1) are not among them, and stay free.
"""
NOT_FROM_NVIDIA = ("dkms",)
"""What NVIDIA's repository has of a distribution's own, with an epoch that beats it. Its dkms does
not depend on the compiler that the kernels of Ubuntu 22.04 are built with, as Ubuntu's does, and no
module is built then (LP#1991664)."""


def sources(url: str) -> str:
    """Return the source list of NVIDIA's flat repository, which only its own key may sign.

    + url: the repository, without a slash at its end
    """
    return f"{HEADER}deb [signed-by={KEYRING}] {url}/ /\n"


def preferences(
    branch: int,
    version: str | None,
    toolkit: tuple[str, str] | None,
    apart: Sequence[str] | None = None,
) -> str:
    """Return the pins: the driver of one branch or version, from one origin alone.

    + branch, version: the declared ones; None as version = any of the branch
    + toolkit: package and exact release of the toolkit, where one is declared
    + apart: where the driver is the distribution's own: its packages whose versions are their own;
      None where the driver comes from NVIDIA

    For each version of a package apt goes by the first record that matches it (apt 2.4 to 3.0:
    tested), so their order matters. A priority above 1000 also brings back what went past it; a
    negative one is never installed. See apt_preferences(5).
    """
    every: tuple[str, ...] = (*DRIVER, *SHARED)
    nvidias = f"release l={LABEL}"
    if apart is None:
        origins = [
            # A label that does not begin with "N", or begins with it and goes on otherwise.
            _record("other archives have packages of these names", DRIVER, "release l=[!N]*", -1),
            _record("see above", DRIVER, "release l=N[!V]*", -1),
        ]
    else:
        origins = [_record("the driver is the distribution's own", every, nvidias, -1)]
        every = tuple(each for each in every if not any(fnmatchcase(one, each) for one in apart))
    wanted = f"{version}-*" if version else f"{branch}.*"
    records = [
        *origins,
        _record("the declared driver", every, f"version {wanted}", 1001),
        _record("and no other driver", every, "version [1-9][0-9][0-9].[0-9]*", -1),
        _record("the distribution's own is the one", NOT_FROM_NVIDIA, nvidias, -1),
    ]
    if toolkit:
        name, release = toolkit
        records.append(_record("the declared toolkit", (name,), f"version {release}-*", 1001))
    return "\n".join([HEADER.rstrip("\n"), *records])


def _record(why: str, packages: Sequence[str], pin: str, priority: int) -> str:
    return (
        f"Explanation: {why}\nPackage: {' '.join(packages)}\nPin: {pin}\nPin-Priority: {priority}\n"
    )


def unattended(*, with_kernels: bool = False) -> str:
    """Return what keeps unattended-upgrades off the driver and the toolkit.

    + with_kernels: whether modules that the distribution built may come with its kernels: without
      them a kernel that came in the night would boot without a driver

    Its entry is a regular expression for the beginning of a name; a list in apt's configuration
    grows with each file, so the distribution's own entries stay.
    """
    spared = "(?!linux-)" if with_kernels else ""
    return f'{HEADER}Unattended-Upgrade::Package-Blacklist {{\n\t"{spared}{NVIDIAS}";\n}};\n'
