"""Ubuntu's archive and NVIDIA's repository for Ubuntu, with the relations their packages have.

Those of branch 580 are as both archives' control files had them in November 2026, but for what
plays no part in choosing a version.
"""

from __future__ import annotations

import re
from pathlib import Path

from private_apt import Package, PrivateApt

NVIDIA, UBUNTU = "NVIDIA CUDA", "Ubuntu"
ASKED = (
    "libnvidia-compute-580",
    "nvidia-dkms-580-open",
    "nvidia-utils-580",
    "nvidia-compute-utils-580",
)


def revision(version: str) -> str:
    """NVIDIA's: -0ubuntu1 to 580.105.08, then -1ubuntu1."""
    newer = [int(part) for part in version.split(".")] > [580, 105, 8]
    return f"{version}-{1 if newer else 0}ubuntu1"


# Packages of one version: {u} is the driver's, {v} the package's.
NVIDIA_580 = """
libnvidia-compute-580
Depends: libnvidia-gpucomp-580 (= {v}), libnvidia-decode-580 (>= {u}),
 nvidia-persistenced (>= {v}), nvidia-kernel-common-580-{u}
Provides: libnvidia-compute
Conflicts: libnvidia-compute
libnvidia-gpucomp-580
libnvidia-decode-580
Depends: libnvidia-compute-580 (= {v})
nvidia-persistenced
nvidia-modprobe
nvidia-firmware-580
nvidia-kernel-common-580
Depends: nvidia-firmware-580 (= {v}), nvidia-modprobe (>= {v})
Provides: nvidia-kernel-common, nvidia-kernel-common-580-{u}
Conflicts: nvidia-kernel-common
nvidia-kernel-source-580-open
nvidia-dkms-580-open
Depends: dkms, nvidia-kernel-source-580-open (= {v}), nvidia-kernel-common-580 (= {v})
nvidia-utils-580
Depends: libnvidia-compute-580 (= {v})
Provides: nvidia-utils
Conflicts: nvidia-utils
nvidia-compute-utils-580
Depends: libnvidia-compute-580 (= {v})
"""
UBUNTU_580 = """
libnvidia-compute-580
Depends: nvidia-kernel-common-580-{u}
libnvidia-decode-580
Depends: libnvidia-compute-580 (= {v})
nvidia-kernel-common-580
Depends: nvidia-firmware-580-{u}
Provides: nvidia-kernel-common, nvidia-kernel-common-580-{u}
nvidia-firmware-580-{u}
nvidia-kernel-source-580-open
nvidia-dkms-580-open
Depends: dkms, nvidia-kernel-source-580-open (<= {u}-1), nvidia-kernel-source-580-open (>= {u}),
 nvidia-kernel-common-580 (<= {u}-1), nvidia-kernel-common-580 (>= {u})
nvidia-utils-580
Depends: libnvidia-compute-580
nvidia-compute-utils-580
Depends: libnvidia-compute-580
Provides: nvidia-persistenced
Conflicts: nvidia-persistenced
nvidia-kernel-common-580-server
Provides: nvidia-kernel-common, nvidia-kernel-common-580-server-{u}
"""


def packages(archive: str, u: str, v: str) -> list[Package]:
    """One version of the driver, as an archive has it."""
    found = []
    for stanza in re.split(r"\n(?=[a-z])", archive.strip().format(u=u, v=v)):
        name, *relations = stanza.splitlines()
        lines = ("Source: nvidia-graphics-drivers", *relations)
        found.append(Package(name, v, "".join(f"{line}\n" for line in lines)))
    return found


def nvidia_580(u: str) -> list[Package]:
    """One version of branch 580, as NVIDIA's repository has it."""
    return packages(NVIDIA_580, u, revision(u))


def pin_file(version: str) -> str:
    """What a pin package puts at /etc/apt/preferences.d/nvidia-driver-pin."""
    return (
        "Package: src:*nvidia*:any src:cuda-drivers:any src:cuda-compat:any\n"
        f"Pin: version {version}\nPin-Priority: 1000\n"
    )


UBUNTUS_DKMS = Package("dkms", "2.8.7-2ubuntu2.2", "Depends: gcc-12\n")
NVIDIAS_DKMS = Package("dkms", "1:3.2.1-1ubuntu2")
GCC_12 = Package("gcc-12", "12.3.0-1ubuntu1~22.04")


def archives(
    folder: Path, ubuntu: tuple[str, ...], nvidia: tuple[str, ...] = ("580.95.05", "580.126.20")
) -> PrivateApt:
    """Return an apt that knows both."""
    apt = PrivateApt(folder)
    apt.repository(
        NVIDIA,
        *(each for u in nvidia for each in nvidia_580(u)),
        NVIDIAS_DKMS,
    )
    apt.repository(
        UBUNTU,
        *(each for u in ubuntu for each in packages(UBUNTU_580, u, f"{u}-0ubuntu0.24.04.1")),
        UBUNTUS_DKMS,
        GCC_12,
        suite="noble-updates",
    )
    return apt
