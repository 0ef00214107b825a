"""NVIDIA's driver packages for Debian: one version's set, its companions and its pins.

Names and relations as in NVIDIA's own repository; what a package holds is the simulated part.
"""

from __future__ import annotations

from pathlib import Path

from pyinfra_gpu_rehearsal.commands import run
from pyinfra_gpu_rehearsal.nvidia.debs import ON_HOST, Content, Link, Package, script

LIBRARIES = "usr/lib/x86_64-linux-gnu"
BRANCHES = ("580", "595")
# What the CUDA part of a driver says it is: the release that the branch was made with.
CUDA = {"580": 13000, "595": 13020}

OPEN, PROPRIETARY = "nvidia-kernel-open-dkms", "nvidia-kernel-dkms"
LICENSES = {OPEN: "Dual MIT/GPL", PROPRIETARY: "NVIDIA"}
SOURCE = "nvidia-graphics-drivers"
PIN_FILE = "etc/apt/preferences.d/nvidia-driver-pin"
PIN_NAMES = "src:*nvidia*:any src:cuda-drivers:any src:cuda-compat:any"

DKMS_MODULES = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm")

# Every package of a version -> what it depends on, where "=" stands for that very version, and
# what it conflicts with.
MODULES = f"{OPEN} = | {PROPRIETARY} ="
KERNEL_PART = "dkms, nvidia-kernel-support =, firmware-nvidia-gsp ="
PACKAGES = {
    "nvidia-driver-cuda": (
        f"{MODULES}, libcuda1 =, libnvidia-ml1 =, libnvidia-ptxjitcompiler1 =, nvidia-smi =,"
        " nvidia-persistenced =, nvidia-modprobe",
        "",
    ),
    "nvidia-driver": ("nvidia-driver-cuda =, nvidia-driver-libs =", "nvidia-suspend-common"),
    "nvidia-open": (f"{OPEN} =, nvidia-driver =", ""),
    "cuda-drivers": (f"{PROPRIETARY} =, nvidia-driver =", ""),
    OPEN: (KERNEL_PART, PROPRIETARY),
    PROPRIETARY: (KERNEL_PART, OPEN),
    "nvidia-kernel-support": ("", "nvidia-kernel-common"),
    "firmware-nvidia-gsp": ("", ""),
    "nvidia-smi": ("libnvidia-ml1 =", ""),
    "nvidia-persistenced": ("libc6", ""),
    "libcuda1": ("libc6, libnvidia-gpucomp =, libnvidia-decode =", ""),
    "libnvidia-ml1": ("libc6", ""),
    "libnvidia-ptxjitcompiler1": ("libc6", ""),
    "libnvidia-gpucomp": ("", ""),
    "libnvidia-decode": ("", ""),
    "nvidia-driver-libs": ("", ""),
    # Nothing holds these to the driver's version.
    "nvidia-modprobe": ("", ""),
    "nvidia-fabricmanager": ("", ""),
    "nvidia-imex": ("", ""),
    "libnvidia-nscq": ("", ""),
}
# Package -> its library's source, and its names, that in programs first.
LIBRARY_OF = {
    "libcuda1": ("libcuda.c", "libcuda.so.1", "libcuda.so"),
    "libnvidia-ml1": ("libnvidia_ml.c", "libnvidia-ml.so.1", "libnvidia-ml.so"),
    "libnvidia-ptxjitcompiler1": ("libptxjit.c", "libnvidia-ptxjitcompiler.so.1"),
}


def branch_of(version: str) -> str:
    """Return the branch of the driver VERSION ("580.95.05" -> "580")."""
    return version.split(".")[0]


def _compile(source: str, target: Path, version: str, *words: str) -> Path:
    defines = [f'-DVERSION="{version}"', f"-DCUDA={CUDA[branch_of(version)]}"]
    command: list[str | Path] = ["gcc", "-O1", *defines, *words, "-o", target, ON_HOST / source]
    run(command, purpose=f"compiling {source}")
    return target


def _library(name: str, version: str, work: Path) -> dict[str, Content]:
    """Return a library with its version in its file name, and the links to it."""
    source, soname, *more = LIBRARY_OF[name]
    target = f"{soname.removesuffix('.1')}.{version}"
    words = ("-shared", "-fPIC", f"-Wl,-soname,{soname}")
    files: dict[str, Content] = {
        f"{LIBRARIES}/{target}": _compile(source, work / target, version, *words)
    }
    for link in (soname, *more):
        files[f"{LIBRARIES}/{link}"] = Link(target)
        target = link
    return files


def _module_source(name: str, version: str) -> dict[str, Content]:
    """Return what DKMS builds."""
    configuration = script("dkms.conf", version=version)
    for number, module in enumerate(DKMS_MODULES):
        configuration += f'BUILT_MODULE_NAME[{number}]="{module}"\n'
        configuration += f'DEST_MODULE_LOCATION[{number}]="/kernel/drivers/video"\n'
    files: dict[str, Content] = {
        "dkms.conf": configuration,
        "Makefile": ON_HOST / "driver.Makefile",
        "Kbuild": ON_HOST / "driver.Kbuild",
        "nvidia.c": ON_HOST / "nvidia.c",
        "version": f"{version}\n",
        "license": f"{LICENSES[name]}\n",
    }
    return {f"usr/src/nvidia-{version}/{path}": content for path, content in files.items()}


def _files(name: str, version: str, work: Path) -> dict[str, Content]:
    """Return what a package holds; most hold nothing."""
    if name in LIBRARY_OF:
        return _library(name, version, work)
    if name in LICENSES:
        return _module_source(name, version)
    if name == "nvidia-persistenced":
        return {
            "usr/bin/nvidia-persistenced": _compile(
                "persistenced.c", work / f"persistenced-{version}", version
            ),
            "usr/lib/systemd/system/nvidia-persistenced.service": ON_HOST / f"{name}.service",
        }
    texts: dict[str, dict[str, Content]] = {
        "nvidia-smi": {"usr/bin/nvidia-smi": script("nvidia-smi", version=version)},
        "nvidia-modprobe": {"usr/bin/nvidia-modprobe": ON_HOST / "nvidia-modprobe"},
        "firmware-nvidia-gsp": {f"usr/lib/firmware/nvidia/{version}/gsp_ga10x.bin": "rehearsal\n"},
        "nvidia-kernel-support": {
            "usr/lib/modprobe.d/nvidia.conf": "options nvidia-drm modeset=1\n"
        },
    }
    return texts.get(name, {})


def _scripts(name: str, version: str) -> dict[str, str]:
    base = "dkms" if name in LICENSES else name
    found = {part: f"{base}.{part}" for part in ("postinst", "prerm", "postrm")}
    return {
        part: script(file, version=version)
        for part, file in found.items()
        if (ON_HOST / file).exists()
    }


def driver_packages(version: str, work: Path) -> list[Package]:
    """Return every package of the driver VERSION.

    + work: a folder for what is compiled.
    """
    rows = []
    for name, (depends, conflicts) in PACKAGES.items():
        files = _files(name, version, work)
        relations = {
            "Source": SOURCE,
            "Depends": depends.replace(" =", f" (= {version}-1)"),
            "Conflicts": conflicts,
        }
        rows.append(
            Package(
                name=name,
                version=f"{version}-1",
                relations=relations,
                files=files,
                programs=tuple(path for path in files if path.startswith("usr/bin/")),
                scripts=_scripts(name, version),
                triggers="activate-noawait ldconfig" if name in LIBRARY_OF else "",
            )
        )
    return rows


def pin_packages(versions: tuple[str, ...]) -> list[Package]:
    """Return the packages that hold a host to one branch, or to one of VERSIONS."""
    pins = {branch: f"{branch}.*" for branch in BRANCHES}
    pins |= {version: f"{version}-*" for version in versions}
    return [
        Package(
            name=f"nvidia-driver-pinning-{name}",
            version=f"{name}-1",
            architecture="all",
            relations=dict.fromkeys(("Provides", "Conflicts", "Replaces"), "nvidia-driver-pinning"),
            # One file for all of them, and by the source's name, whoever offers it.
            files={
                PIN_FILE: f"# rehearsal\nPackage: {PIN_NAMES}\n"
                f"Pin: version {version}\nPin-Priority: 1000\n"
            },
        )
        for name, version in pins.items()
    ]
