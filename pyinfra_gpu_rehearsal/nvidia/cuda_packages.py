"""CUDA packages: the real nvcc 13.0 from NVIDIA's wheels, under NVIDIA's package names."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import run
from pyinfra_gpu_rehearsal.nvidia.debs import ON_HOST, Content, Link, Package, script
from pyinfra_gpu_rehearsal.wheelhouse import download

VERSION = "13.0.3"
TARGET = "targets/x86_64-linux"
CONFIG = "cuda-toolkit-config-common"  # of every release; "cuda-toolkit-13-0-config-common" of one
# Package -> the wheel its files are in, and what it needs.
WHEELS = {
    "cuda-nvcc-13-0": ("nvidia-cuda-nvcc==13.0.88", ", cuda-crt-13-0, libnvvm-13-0"),
    "libnvvm-13-0": ("nvidia-nvvm==13.0.88", ""),
    "cuda-crt-13-0": ("nvidia-cuda-crt==13.0.88", ""),
    "cuda-cccl-13-0": ("nvidia-cuda-cccl==13.0.85", ""),
    "cuda-cudart-13-0": ("nvidia-cuda-runtime==13.0.96", ""),
}
LARGE = ("cuda-nvcc-13-0", "libnvvm-13-0", "cuda-cccl-13-0")
RUNTIME_LIBRARY = "libcudart.so.13"  # in cuda-cudart-13-0; the rest of the wheel in its -dev
_ROOT = "usr/local/cuda-13.0"


def download_wheels(folder: Path) -> None:
    """Download the wheels into FOLDER. Raises LabError where that fails."""
    download([wheel for wheel, _ in WHEELS.values()], folder, "--no-deps")


def _unpack(wheel: str, wheels: Path, work: Path) -> dict[str, Content]:
    """Unpack a wheel, and return its files by where they are on a host."""
    start = wheel.replace("-", "_").replace("==", "-")
    files: dict[str, Content] = {}
    with zipfile.ZipFile(next(wheels.glob(f"{start}-*.whl"))) as archive:
        for entry in archive.namelist():
            part = entry.removeprefix("nvidia/cu13/")
            if part == entry or entry.endswith("/"):
                continue
            if part.startswith(("include/", "lib/")):
                part = f"{TARGET}/{part}"
            files[f"{_ROOT}/{part}"] = Path(archive.extract(entry, work))
    return files


def _package(
    name: str, version: str, depends: str = "", files: Mapping[str, Content] | None = None
) -> Package:
    files = files or {}
    release = "13.1" if "13-1" in name else "13.0"
    versioned = name in ("cuda-toolkit-13-1", "cuda-toolkit-13-0-config-common")
    values = {"release": release, "priority": release.replace(".", "")}
    return Package(
        name=name,
        version=f"{version}-1",
        relations={"Depends": depends},
        files=files,
        programs=tuple(path for path in files if path.split("/")[-2] == "bin"),
        scripts={
            part: script(f"cuda-alternatives.{part}", **values)
            for part in ("postinst", "prerm")
            if versioned  # /usr/local/cuda leads to one of those that are installed
        },
        triggers="activate-noawait ldconfig" if name in WHEELS else "",
        compress=name in LARGE,
    )


def _about(version: str) -> str:
    return json.dumps({"cuda": {"name": "CUDA SDK (rehearsal)", "version": version}}) + "\n"


def cuda_packages(wheels: Path, work: Path) -> list[Package]:
    """Return the CUDA packages.

    + wheels: the folder with the wheels; work: a folder for what is unpacked and compiled.
    """
    config, newer = "cuda-toolkit-13-0-config-common", "usr/local/cuda-13.1"
    stub = work / "libcuda-stub.so"
    library = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    source = ON_HOST / "libcuda_stub.c"
    run([*library, "-o", stub, source], purpose="compiling the stub of libcuda")
    found = []
    for name, (wheel, more) in WHEELS.items():
        files, version = _unpack(wheel, wheels, work / name), wheel.split("==")[1]
        if name == "cuda-cudart-13-0":
            development = {p: c for p, c in files.items() if RUNTIME_LIBRARY not in p}
            development[f"{_ROOT}/{TARGET}/lib/libcudart.so"] = Link(RUNTIME_LIBRARY)
            needs = f"{name} (= {version}-1), cuda-driver-dev-13-0"
            found.append(_package("cuda-cudart-dev-13-0", version, needs, development))
            files = {p: c for p, c in files.items() if RUNTIME_LIBRARY in p}
        found.append(_package(name, version, config + more, files))
    return [
        *found,
        _package(CONFIG, VERSION, "", {
            "etc/ld.so.conf.d/000_cuda.conf": f"/usr/local/cuda/{TARGET}/lib\n",
        }),
        _package(config, VERSION, CONFIG, {
            f"{_ROOT}/include": Link(f"{TARGET}/include"),
            f"{_ROOT}/lib64": Link(f"{TARGET}/lib"),
        }),
        _package("cuda-driver-dev-13-0", "13.0.96", config, {
            f"{_ROOT}/{TARGET}/lib/stubs/libcuda.so": stub,
        }),
        _package("cuda-toolkit-13-0", VERSION, "cuda-cudart-dev-13-0, " + ", ".join(WHEELS), {
            f"{_ROOT}/version.json": _about(VERSION),
        }),
        _package("cuda-toolkit-13-1", "13.1.1", CONFIG, {
            f"{newer}/bin/nvcc": ON_HOST / "nvcc-13.1",
            f"{newer}/version.json": _about("13.1.1"),
            f"{newer}/{TARGET}/lib/rehearsal": "",
            f"{newer}/lib64": Link(f"{TARGET}/lib"),
        }),
    ]  # fmt: skip
