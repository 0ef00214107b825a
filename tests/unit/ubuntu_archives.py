"""Ubuntu's archive and NVIDIA's repository for Ubuntu, with the relations their packages have.

Those of branch 580 are as both archives' control files had them in November 2026, but for what
plays no part in choosing a version. From 590 on, only that no name carries the branch, that the
modules ask for ">=", the library for "=" of nvidia-persistenced, and the conflict of
nvidia-kernel-common are from there (NVIDIA's driver installation guide; apt's words in reports).
"""

from __future__ import annotations

from pathlib import Path

from private_apt import Package, PrivateApt

NVIDIA, UBUNTU = "NVIDIA CUDA", "Ubuntu"
ASKED = (
    "libnvidia-compute-580",
    "nvidia-dkms-580-open",
    "nvidia-utils-580",
    "nvidia-compute-utils-580",
)
ASKED_590 = ("libnvidia-compute", "nvidia-dkms-open", "nvidia-persistenced")


def revision(version: str) -> str:
    """NVIDIA's: -0ubuntu1 to 580.105.08, then -1ubuntu1."""
    newer = [int(part) for part in version.split(".")] > [580, 105, 8]
    return f"{version}-{1 if newer else 0}ubuntu1"


def _package(name: str, version: str, depends: str = "", **relations: str) -> Package:
    source = "nvidia-graphics-drivers"
    fields = {"Source": source, "Depends": depends, **relations}
    text = "".join(f"{key}: {value}\n" for key, value in fields.items() if value)
    return Package(name, version, text)


def nvidia_580(u: str) -> list[Package]:
    """One version of branch 580, as NVIDIA's repository has it."""
    v = revision(u)
    return [
        _package(
            "libnvidia-compute-580",
            v,
            f"libnvidia-gpucomp-580 (= {v}), libnvidia-decode-580 (>= {u}),"
            f" nvidia-persistenced (>= {v}), nvidia-kernel-common-580-{u}",
            Provides="libnvidia-compute",
            Conflicts="libnvidia-compute",
        ),
        _package("libnvidia-gpucomp-580", v),
        _package("libnvidia-decode-580", v, f"libnvidia-compute-580 (= {v})"),
        _package("nvidia-persistenced", v),
        _package("nvidia-modprobe", v),
        _package("nvidia-firmware-580", v),
        _package(
            "nvidia-kernel-common-580",
            v,
            f"nvidia-firmware-580 (= {v}), nvidia-modprobe (>= {v})",
            Provides=f"nvidia-kernel-common, nvidia-kernel-common-580-{u}",
            Conflicts="nvidia-kernel-common",
        ),
        _package("nvidia-kernel-source-580-open", v),
        _package(
            "nvidia-dkms-580-open",
            v,
            f"dkms, nvidia-kernel-source-580-open (= {v}), nvidia-kernel-common-580 (= {v})",
        ),
        _package(
            "nvidia-utils-580",
            v,
            f"libnvidia-compute-580 (= {v})",
            Provides="nvidia-utils",
            Conflicts="nvidia-utils",
        ),
        _package("nvidia-compute-utils-580", v, f"libnvidia-compute-580 (= {v})"),
    ]


def nvidia_590(u: str) -> list[Package]:
    """One version of a branch from 590 on: no name carries the branch."""
    v = f"{u}-1ubuntu1"
    return [
        _package(
            "libnvidia-compute",
            v,
            f"libnvidia-gpucomp (= {v}), nvidia-persistenced (= {v}),"
            f" nvidia-kernel-common (>= {v})",
        ),
        _package("libnvidia-gpucomp", v),
        _package("nvidia-persistenced", v),
        _package("nvidia-modprobe", v),
        _package("nvidia-firmware", v),
        _package(
            "nvidia-kernel-common",
            v,
            f"nvidia-firmware (= {v}), nvidia-modprobe (>= {v})",
            Conflicts="nvidia-kernel-common",
        ),
        _package("nvidia-kernel-source-open", v),
        # ">=", not "=": without a pin apt takes the newest of all branches
        _package(
            "nvidia-dkms-open",
            v,
            f"dkms, nvidia-kernel-source-open (>= {u}), nvidia-kernel-common (>= {u})",
        ),
    ]


def pin_file(version: str) -> str:
    """What a pin package puts at /etc/apt/preferences.d/nvidia-driver-pin."""
    return (
        "Package: src:*nvidia*:any src:cuda-drivers:any src:cuda-compat:any\n"
        f"Pin: version {version}\nPin-Priority: 1000\n"
    )


def ubuntu_580(u: str, release: str = "24.04") -> list[Package]:
    """One version of branch 580, as Ubuntu's archive has it."""
    v = f"{u}-0ubuntu0.{release}.1"
    bounds = f"(<= {u}-1), nvidia-kernel-source-580-open (>= {u})"
    common = f"nvidia-kernel-common-580 (<= {u}-1), nvidia-kernel-common-580 (>= {u})"
    return [
        _package("libnvidia-compute-580", v, f"nvidia-kernel-common-580-{u}"),
        _package("libnvidia-decode-580", v, f"libnvidia-compute-580 (= {v})"),
        _package(
            "nvidia-kernel-common-580",
            v,
            f"nvidia-firmware-580-{u}",
            Provides=f"nvidia-kernel-common, nvidia-kernel-common-580-{u}",
        ),
        _package(f"nvidia-firmware-580-{u}", v),
        _package("nvidia-kernel-source-580-open", v),
        _package(
            "nvidia-dkms-580-open",
            v,
            f"dkms, nvidia-kernel-source-580-open {bounds}, {common}",
        ),
        _package("nvidia-utils-580", v, "libnvidia-compute-580"),
        _package(
            "nvidia-compute-utils-580",
            v,
            "libnvidia-compute-580",
            Provides="nvidia-persistenced",
            Conflicts="nvidia-persistenced",
        ),
        _package(
            "nvidia-kernel-common-580-server",
            v,
            Provides=f"nvidia-kernel-common, nvidia-kernel-common-580-server-{u}",
        ),
    ]


UBUNTUS_DKMS = Package("dkms", "2.8.7-2ubuntu2.2", "Depends: gcc-12\n")
NVIDIAS_DKMS = Package("dkms", "1:3.2.1-1ubuntu2")
GCC_12 = Package("gcc-12", "12.3.0-1ubuntu1~22.04")


def archives(
    folder: Path, ubuntu: tuple[str, ...], nvidia: tuple[str, ...] = ("580.95.05", "580.126.20")
) -> PrivateApt:
    """Return an apt that knows both, with branch 595 beside."""
    apt = PrivateApt(folder)
    apt.repository(
        NVIDIA,
        *(package for version in nvidia for package in nvidia_580(version)),
        *(package for version in ("595.71.05", "610.57.04") for package in nvidia_590(version)),
        NVIDIAS_DKMS,
    )
    apt.repository(
        UBUNTU,
        *(package for version in ubuntu for package in ubuntu_580(version)),
        UBUNTUS_DKMS,
        GCC_12,
        suite="noble-updates",
    )
    return apt
