"""NVIDIA's driver packages for Debian: one version's set, its companions and its pins.

Names and relations as in NVIDIA's own repository; what a package holds is the simulated part.
"""

from __future__ import annotations

from pathlib import Path

from pyinfra_gpu_rehearsal.commands import run
from pyinfra_gpu_rehearsal.nvidia.debs import ON_HOST, Link, Package, script

LIBRARIES = "usr/lib/x86_64-linux-gnu"
BRANCHES = ("580", "595")
# What the CUDA part of a driver says it is: of the release the branch was made with.
CUDA = {"580": (13000, "13.0"), "595": (13020, "13.2")}

OPEN, PROPRIETARY = "nvidia-kernel-open-dkms", "nvidia-kernel-dkms"
LICENSES = {OPEN: "Dual MIT/GPL", PROPRIETARY: "NVIDIA"}
# Of one version, and what depends on which of them does so with that very version.
SAME_VERSION = (
    "nvidia-open", "cuda-drivers", "nvidia-driver", "nvidia-driver-cuda", OPEN, PROPRIETARY,
    "nvidia-kernel-support", "libcuda1", "libnvidia-ml1", "libnvidia-ptxjitcompiler1",
    "nvidia-smi", "nvidia-persistenced", "firmware-nvidia-gsp", "nvidia-driver-libs",
    "libnvidia-gpucomp", "libnvidia-decode",
)  # fmt: skip
# Of the same source, but nothing holds them to the driver's version.
UNPINNED = ("nvidia-modprobe", "nvidia-fabricmanager", "nvidia-imex", "libnvidia-nscq")

SOURCE = "nvidia-graphics-drivers"
PIN_FILE = "etc/apt/preferences.d/nvidia-driver-pin"
PIN_NAMES = "src:*nvidia*:any src:cuda-drivers:any src:cuda-compat:any"

DKMS_MODULES = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm")


def branch_of(version: str) -> str:
    """Return the branch of the driver VERSION ("580.95.05" -> "580")."""
    return version.split(".")[0]


def _compile(source: str, target: Path, version: str, *words: str) -> Path:
    number, text = CUDA[branch_of(version)]
    defines = [f'-DVERSION="{version}"', f"-DCUDA={number}", f'-DCUDA_TEXT="{text}"']
    command: list[str | Path] = ["gcc", "-O1", *defines, *words, "-o", target, ON_HOST / source]
    run([*command, "-ldl"], purpose=f"compiling {source}")
    return target


def _library(name: str, version: str, source: str, work: Path, *links: str) -> Package:
    """Return the package NAME with one library, its version in its file name, and LINKS to it."""
    soname = links[0]
    plain = soname.removesuffix(".1")
    built = work / f"{plain}.{version}"
    _compile(source, built, version, "-shared", "-fPIC", f"-Wl,-soname,{soname}")
    files: dict[str, str | bytes | Path | Link] = {f"{LIBRARIES}/{plain}.{version}": built}
    target = f"{plain}.{version}"
    for link in links:
        files[f"{LIBRARIES}/{link}"] = Link(target)
        target = link
    return Package(
        name=name,
        version=f"{version}-1",
        relations={"Depends": "libc6"},
        files=files,
        triggers="activate-noawait ldconfig",
    )


def _dkms(name: str, version: str, exact: str) -> Package:
    source = f"usr/src/nvidia-{version}"
    configuration = script("dkms.conf", version=version)
    for number, module in enumerate(DKMS_MODULES):
        configuration += f'BUILT_MODULE_NAME[{number}]="{module}"\n'
        configuration += f'DEST_MODULE_LOCATION[{number}]="/kernel/drivers/video"\n'
    other = PROPRIETARY if name == OPEN else OPEN
    return Package(
        name=name,
        version=f"{version}-1",
        relations={
            "Depends": f"dkms, nvidia-kernel-support {exact}, firmware-nvidia-gsp {exact}",
            "Conflicts": other,
        },
        files={
            f"{source}/dkms.conf": configuration,
            f"{source}/Makefile": ON_HOST / "driver.Makefile",
            f"{source}/Kbuild": ON_HOST / "driver.Kbuild",
            f"{source}/nvidia.c": ON_HOST / "nvidia.c",
            f"{source}/version": f"{version}\n",
            f"{source}/license": f"{LICENSES[name]}\n",
        },
        scripts={
            "postinst": script("dkms.postinst", version=version),
            "prerm": script("dkms.prerm", version=version),
        },
    )


def _programs(version: str, work: Path, exact: str) -> list[Package]:
    smi = _compile("nvidia_smi.c", work / f"nvidia-smi-{version}", version)
    daemon = _compile("persistenced.c", work / f"persistenced-{version}", version)
    unit = ON_HOST / "nvidia-persistenced.service"
    return [
        Package(
            name="nvidia-smi",
            version=f"{version}-1",
            relations={"Depends": f"libc6, libnvidia-ml1 {exact}"},
            files={"usr/bin/nvidia-smi": smi},
            programs=("usr/bin/nvidia-smi",),
        ),
        Package(
            name="nvidia-persistenced",
            version=f"{version}-1",
            relations={"Depends": "libc6"},
            files={
                "usr/bin/nvidia-persistenced": daemon,
                "usr/lib/systemd/system/nvidia-persistenced.service": unit,
            },
            programs=("usr/bin/nvidia-persistenced",),
            scripts={
                "postinst": script("nvidia-persistenced.postinst"),
                "prerm": script("nvidia-persistenced.prerm"),
                "postrm": script("nvidia-persistenced.postrm"),
            },
        ),
        Package(
            name="nvidia-modprobe",
            version=f"{version}-1",
            files={"usr/bin/nvidia-modprobe": ON_HOST / "nvidia-modprobe"},
            programs=("usr/bin/nvidia-modprobe",),
        ),
    ]


def _metapackages(version: str, exact: str) -> list[Package]:
    def meta(name: str, depends: str) -> Package:
        return Package(name=name, version=f"{version}-1", relations={"Depends": depends})

    modules = f"{OPEN} {exact} | {PROPRIETARY} {exact}"
    compute = ", ".join(
        f"{name} {exact}"
        for name in (
            "libcuda1", "libnvidia-ml1", "libnvidia-ptxjitcompiler1", "nvidia-smi",
            "nvidia-persistenced",
        )
    )  # fmt: skip
    return [
        meta("nvidia-driver-cuda", f"{modules}, {compute}, nvidia-modprobe"),
        meta("nvidia-driver", f"nvidia-driver-cuda {exact}, nvidia-driver-libs {exact}").changed(
            Conflicts="nvidia-suspend-common"
        ),
        meta("nvidia-open", f"{OPEN} {exact}, nvidia-driver {exact}"),
        meta("cuda-drivers", f"{PROPRIETARY} {exact}, nvidia-driver {exact}"),
    ]


def driver_packages(version: str, work: Path) -> list[Package]:
    """Return every package of the driver VERSION.

    + work: a folder for what is compiled.
    """
    exact = f"(= {version}-1)"
    rows = [
        *_metapackages(version, exact),
        _dkms(OPEN, version, exact),
        _dkms(PROPRIETARY, version, exact),
        *_programs(version, work, exact),
        _library("libcuda1", version, "libcuda.c", work, "libcuda.so.1", "libcuda.so").changed(
            Depends=f"libc6, libnvidia-gpucomp {exact}, libnvidia-decode {exact}"
        ),
        _library(
            "libnvidia-ml1", version, "libnvidia_ml.c", work, "libnvidia-ml.so.1", "libnvidia-ml.so"
        ),
        _library(
            "libnvidia-ptxjitcompiler1", version, "libptxjit.c", work,
            "libnvidia-ptxjitcompiler.so.1",
        ),
        Package(
            name="firmware-nvidia-gsp",
            version=f"{version}-1",
            files={f"usr/lib/firmware/nvidia/{version}/gsp_ga10x.bin": "rehearsal\n"},
        ),
        Package(
            name="nvidia-kernel-support",
            version=f"{version}-1",
            relations={"Conflicts": "nvidia-kernel-common"},
            files={"usr/lib/modprobe.d/nvidia.conf": "options nvidia-drm modeset=1\n"},
        ),
    ]  # fmt: skip
    made = {package.name for package in rows}
    empty = [name for name in (*SAME_VERSION, *UNPINNED) if name not in made]
    rows += [Package(name=name, version=f"{version}-1") for name in empty]
    return [package.changed(Source=SOURCE) for package in rows]


def pin_packages(versions: tuple[str, ...]) -> list[Package]:
    """Return the packages that hold a host to one branch, or to one of VERSIONS."""
    pins = {branch: f"{branch}.*" for branch in BRANCHES}
    pins |= {version: f"{version}-*" for version in versions}
    found = []
    for name, version in pins.items():
        package = f"nvidia-driver-pinning-{name}"
        text = f"# rehearsal\nPackage: {PIN_NAMES}\nPin: version {version}\nPin-Priority: 1000\n"
        found.append(
            Package(
                name=package,
                version=f"{name}-1",
                architecture="all",
                relations={
                    "Provides": "nvidia-driver-pinning",
                    "Conflicts": "nvidia-driver-pinning",
                    "Replaces": "nvidia-driver-pinning",
                },
                # One file for all of them, and by the source's name, whoever offers it.
                files={PIN_FILE: text},
            )
        )
    return found
