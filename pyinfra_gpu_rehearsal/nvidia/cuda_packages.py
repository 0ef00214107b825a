"""CUDA packages: the real nvcc 13.0 from NVIDIA's wheels, under NVIDIA's package names."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import run
from pyinfra_gpu_rehearsal.nvidia.debs import ON_HOST, Content, Link, Package, script
from pyinfra_gpu_rehearsal.wheelhouse import pip_command

VERSION = "13.0.3"
TARGET = "targets/x86_64-linux"
# Debian package -> the wheel its files are in, and the part of that which is its own.
WHEELS = {
    "cuda-nvcc-13-0": "nvidia-cuda-nvcc==13.0.88",
    "libnvvm-13-0": "nvidia-nvvm==13.0.88",
    "cuda-crt-13-0": "nvidia-cuda-crt==13.0.88",
    "cuda-cccl-13-0": "nvidia-cuda-cccl==13.0.85",
    "cuda-cudart-13-0": "nvidia-cuda-runtime==13.0.96",
}
RUNTIME_LIBRARY = "libcudart.so.13"  # in cuda-cudart-13-0; the rest of the wheel in its -dev
COMPAT = "580.105.08"
_VERSION = f"{VERSION}-1"  # of its packages
_ROOT = "usr/local/cuda-13.0"


def download_wheels(folder: Path) -> None:
    """Download the wheels into FOLDER. Raises LabError where that fails."""
    words = ["--only-binary=:all:", "--no-deps", "--quiet", "--disable-pip-version-check"]
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in range(28, 11, -1)]
    more = ["--platform=manylinux2014_x86_64", "--platform=manylinux2010_x86_64"]
    command = [*pip_command(), "download", *words, *platforms, *more, "--dest", str(folder)]
    run([*command, *WHEELS.values()], purpose="downloading nvcc's wheels", timeout=1800)


def _unpack(name: str, wheels: Path, work: Path) -> Path:
    """Unpack the wheel of the package NAME as the tree below /usr/local/cuda-13.0."""
    start = WHEELS[name].replace("-", "_").replace("==", "-")
    wheel = next(wheels.glob(f"{start}-*.whl"))
    tree = work / name
    shutil.rmtree(tree, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            folders = entry.filename.split("/")
            if entry.is_dir() or folders[:2] != ["nvidia", "cu13"]:
                continue
            part = "/".join(folders[2:])
            if folders[2] in ("include", "lib"):
                part = f"{TARGET}/{part}"
            path = tree / part
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, path.open("wb") as target:
                shutil.copyfileobj(source, target)
            if folders[-2] == "bin":
                path.chmod(0o755)
    return tree


def _files(tree: Path) -> dict[str, Content]:
    return {f"{_ROOT}/{path.relative_to(tree)}": path for path in tree.rglob("*") if path.is_file()}


def _real_packages(wheels: Path, work: Path) -> list[Package]:
    found = []
    for name, wheel in WHEELS.items():
        files = _files(_unpack(name, wheels, work))
        version = f"{wheel.split('==')[1]}-1"
        programs = tuple(path for path in files if path.split("/")[-2] == "bin")
        relations = {"Depends": "cuda-toolkit-13-0-config-common"}
        if name == "cuda-nvcc-13-0":
            relations["Depends"] += ", cuda-crt-13-0, libnvvm-13-0"
        if name == "cuda-cudart-13-0":
            development = {p: c for p, c in files.items() if RUNTIME_LIBRARY not in p}
            files = {p: c for p, c in files.items() if RUNTIME_LIBRARY in p}
            link = f"{_ROOT}/{TARGET}/lib/libcudart.so"
            found.append(
                Package(
                    name="cuda-cudart-dev-13-0",
                    version=version,
                    relations={"Depends": f"{name} (= {version}), cuda-driver-dev-13-0"},
                    files={**development, link: Link(RUNTIME_LIBRARY)},
                )
            )
        found.append(
            Package(
                name=name,
                version=version,
                description=f"files of the wheel {wheel}",
                relations=relations,
                files=files,
                programs=programs,
                triggers="activate-noawait ldconfig",
                compress=name in ("cuda-nvcc-13-0", "libnvvm-13-0", "cuda-cccl-13-0"),
            )
        )
    return found


def _alternatives(release: str, priority: int) -> dict[str, str]:
    values = {"release": release, "priority": str(priority)}
    return {name: script(f"cuda-alternatives.{name}", **values) for name in ("postinst", "prerm")}


def _compile_library(source: str, soname: str, target: Path, *words: str) -> Path:
    link: list[str | Path] = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{soname}", *words]
    run([*link, "-o", target, ON_HOST / source], purpose=f"compiling {source}")
    return target


def _support_packages(work: Path) -> list[Package]:
    stub = _compile_library("libcuda_stub.c", "libcuda.so.1", work / "libcuda-stub.so")
    compat = _compile_library(
        "libcuda.c", "libcuda.so.1", work / "libcuda-compat.so", f'-DVERSION="{COMPAT}"',
        "-DCUDA=13000",
    )  # fmt: skip
    about = {"cuda": {"name": "CUDA SDK (rehearsal)", "version": VERSION}}
    return [
        *_configuration(),
        Package(
            name="cuda-driver-dev-13-0",
            version="13.0.96-1",
            relations={"Depends": "cuda-toolkit-13-0-config-common"},
            files={f"{_ROOT}/{TARGET}/lib/stubs/libcuda.so": stub},
        ),
        Package(
            name="cuda-toolkit-13-0",
            version=_VERSION,
            relations={"Depends": "cuda-cudart-dev-13-0, " + ", ".join(WHEELS)},
            files={f"{_ROOT}/version.json": json.dumps(about, indent=1) + "\n"},
        ),
        Package(
            name="cuda-compat-13-0",
            version=f"{COMPAT}-1",
            files={
                f"{_ROOT}/compat/libcuda.so.{COMPAT}": compat,
                f"{_ROOT}/compat/libcuda.so.1": Link(f"libcuda.so.{COMPAT}"),
                f"{_ROOT}/compat/libcuda.so": Link("libcuda.so.1"),
            },
        ),
    ]


def _configuration() -> list[Package]:
    return [
        Package(
            name="cuda-toolkit-config-common",
            version=_VERSION,
            files={"etc/ld.so.conf.d/000_cuda.conf": f"/usr/local/cuda/{TARGET}/lib\n"},
        ),
        Package(
            name="cuda-toolkit-13-0-config-common",
            version=_VERSION,
            relations={"Depends": "cuda-toolkit-config-common"},
            files={
                f"{_ROOT}/include": Link(f"{TARGET}/include"),
                f"{_ROOT}/lib64": Link(f"{TARGET}/lib"),
            },
            scripts=_alternatives("13.0", 130),
        ),
    ]


def _newer_toolkit() -> Package:
    root = "usr/local/cuda-13.1"
    about = {"cuda": {"name": "CUDA SDK (rehearsal)", "version": "13.1.1"}}
    return Package(
        name="cuda-toolkit-13-1",
        version="13.1.1-1",
        relations={"Depends": "cuda-toolkit-config-common"},
        files={
            f"{root}/bin/nvcc": ON_HOST / "nvcc-13.1",
            f"{root}/version.json": json.dumps(about, indent=1) + "\n",
            f"{root}/{TARGET}/lib/rehearsal": "",
            f"{root}/lib64": Link(f"{TARGET}/lib"),
        },
        programs=(f"{root}/bin/nvcc",),
        scripts=_alternatives("13.1", 131),
    )


def cuda_packages(wheels: Path, work: Path) -> list[Package]:
    """Return the CUDA packages.

    + wheels: the folder with the wheels; work: a folder for what is unpacked and compiled.
    """
    metapackages = [
        Package(
            name="cuda-13-0", version=_VERSION,
            relations={"Depends": f"cuda-toolkit-13-0 (>= {VERSION}), cuda-drivers"},
        ),
        Package(name="cuda", version=_VERSION, relations={"Depends": "cuda-13-0"}),
    ]  # fmt: skip
    real = _real_packages(wheels, work)
    return [*real, *_support_packages(work), _newer_toolkit(), *metapackages]
