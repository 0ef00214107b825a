"""Every simulated package, as one table with one builder.

Names and relations as in NVIDIA's own repository and in Debian's; what a package holds is the
simulated part, beside the real nvcc 13.0 from NVIDIA's wheels. The running kernel is the real
machine's, whose release is whatever `uname -r` says; a newer one can be installed, and is never
booted.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
import zipfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from pyinfra_gpu_rehearsal.apt_repository import pack
from pyinfra_gpu_rehearsal.commands import Say, remove_tree, run
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.state import cache_folder, locked
from pyinfra_gpu_rehearsal.wheelhouse import download

ON_HOST = Path(__file__).parent / "on_host"
"""Programs and files for the hosts, and sources of what is compiled for them."""

DRIVERS = ("580.82.07", "580.95.05", "580.105.08", "595.71.05")
# What the CUDA part of a driver says it is: the release that the branch was made with.
CUDA_OF = {"580": "13000", "595": "13020"}
OPEN, PROPRIETARY = "nvidia-kernel-open-dkms", "nvidia-kernel-dkms"
DESKTOP = "rehearsal-desktop"

Files = Mapping[str, str | Path]
"""Path without the leading slash -> a text, "-> " and what a link leads to, or "< " and a file of
on_host; a path is a file of a wheel. In texts, those of on_host too, @KEY@ is the package's value
of that name; C is compiled, and has them as macros."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """One package.

    + depends, conflicts: as in its control file
    + script: what the names of its scripts in on_host begin with
    + values: for what it holds
    """

    name: str
    version: str
    architecture: str = "amd64"
    depends: str = ""
    conflicts: str = ""
    source: str = ""
    files: Files = field(default_factory=dict)
    script: str = ""
    values: Mapping[str, str] = field(default_factory=dict)

    def control(self) -> str:
        """Return the text of its control file."""
        fields = {
            "Package": self.name,
            "Source": self.source,
            "Version": self.version,
            "Architecture": self.architecture,
            "Maintainer": "pyinfra-gpu rehearsal <rehearsal@localhost>",
            "Section": "misc",
            "Priority": "optional",
            "Depends": self.depends,
            "Conflicts": self.conflicts,
            "Description": f"rehearsal: {self.name}",
        }
        return "".join(f"{key}: {value}\n" for key, value in fields.items() if value)

    def lay_out(self, tree: Path) -> None:
        """Write what it holds into the folder TREE."""
        for name, content in self.files.items():
            path = tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                shutil.copyfile(content, path)
            elif content.startswith("-> "):
                path.symlink_to(content.removeprefix("-> "))
            elif content.startswith("< ") and content.endswith(".c"):
                self._compile(ON_HOST / content[2:], path)
            else:
                path.write_text(self._filled(content))
            if not path.is_symlink():
                path.chmod(0o755 if "/bin/" in name else 0o644)

    def _filled(self, content: str) -> str:
        text = (ON_HOST / content[2:]).read_text() if content.startswith("< ") else content
        for key, value in self.values.items():
            text = text.replace(f"@{key.upper()}@", value)
        return text

    def _compile(self, source: Path, target: Path) -> None:
        words: list[str | Path] = [
            f"-D{key.upper()}={value}" if value.isdigit() else f'-D{key.upper()}="{value}"'
            for key, value in self.values.items()
        ]
        if ".so" in target.name:
            soname = f"{target.name.partition('.so')[0]}.so.1"
            words += ["-shared", "-fPIC", f"-Wl,-soname,{soname}"]
        elif target.suffix == ".ko":
            words.append("-c")
        run(["gcc", "-O1", *words, "-o", target, source], purpose=f"compiling {source.name}")

    def build(self, folder: Path) -> Path:
        """Make its file in FOLDER, and beside it (.stanza) its entry in an index."""
        with tempfile.TemporaryDirectory(prefix="pgpu-deb-", dir=folder) as name:
            tree = Path(name, "tree")
            (tree / "DEBIAN").mkdir(parents=True)
            tree.chmod(0o755)
            self.lay_out(tree)
            meta = {"control": self.control()}
            if settings := [f"/{name}\n" for name in self.files if name.startswith("etc/")]:
                meta["conffiles"] = "".join(settings)
            if any(".so" in path for path in self.files):
                meta["triggers"] = "activate-noawait ldconfig\n"
            for part in ("postinst", "prerm", "postrm"):
                if self.script and (ON_HOST / f"{self.script}.{part}").exists():
                    meta[part] = "#!/bin/sh\nset -e\n" + self._filled(f"< {self.script}.{part}")
            for part, text in meta.items():
                (tree / "DEBIAN" / part).write_text(text)
                (tree / "DEBIAN" / part).chmod(0o755)
            large = any(isinstance(content, Path) for content in self.files.values())
            file = f"{self.name}_{self.version}_{self.architecture}.deb"
            return pack(tree, folder / file, compress=large)


# -- the driver

_KERNEL_PART = "dkms, nvidia-kernel-support =, firmware-nvidia-gsp ="
# Every package of a version -> what it depends on, where "=" stands for that very version, and
# what it conflicts with.
RELATIONS = {
    "nvidia-driver-cuda": (
        f"{OPEN} = | {PROPRIETARY} =, libcuda1 =, libnvidia-ml1 =, libnvidia-ptxjitcompiler1 =,"
        " nvidia-smi =, nvidia-persistenced =, nvidia-modprobe",
        "",
    ),
    "nvidia-driver": ("nvidia-driver-cuda =, nvidia-driver-libs =", "nvidia-suspend-common"),
    "nvidia-open": (f"{OPEN} =, nvidia-driver =", ""),
    "cuda-drivers": (f"{PROPRIETARY} =, nvidia-driver =", ""),
    OPEN: (_KERNEL_PART, PROPRIETARY),
    PROPRIETARY: (_KERNEL_PART, OPEN),
    "nvidia-kernel-support": ("", "nvidia-kernel-common"),
    "nvidia-smi": ("libnvidia-ml1 =", ""),
    "nvidia-persistenced": ("libc6", ""),
    "libcuda1": ("libc6, libnvidia-gpucomp =, libnvidia-decode =", ""),
    "libnvidia-ml1": ("libc6", ""),
    "libnvidia-ptxjitcompiler1": ("libc6", ""),
    # Nothing holds nvidia-modprobe and those after it to the driver's version.
    **dict.fromkeys(
        ("firmware-nvidia-gsp", "libnvidia-gpucomp", "libnvidia-decode", "nvidia-driver-libs",
         "nvidia-modprobe", "nvidia-fabricmanager", "nvidia-imex", "libnvidia-nscq"),
        ("", ""),
    ),
}  # fmt: skip


def _library(name: str, source: str) -> dict[str, str]:
    """Return a library with its version in its file name, and the links to it."""
    path = f"usr/lib/x86_64-linux-gnu/{name}.so"
    links = {f"{path}.1": f"-> {name}.so.@VERSION@", path: f"-> {name}.so.1"}
    return {f"{path}.@VERSION@": f"< {source}", **links}


def _module_source(license_: str) -> dict[str, str]:
    """Return what DKMS builds."""
    modules = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm")
    rows = [
        f'BUILT_MODULE_NAME[{i}]="{name}"\nDEST_MODULE_LOCATION[{i}]="/kernel/drivers/video"\n'
        for i, name in enumerate(modules)
    ]
    files = {
        "dkms.conf": (ON_HOST / "dkms.conf").read_text() + "".join(rows),
        "Makefile": "< driver.Makefile",
        "Kbuild": "< driver.Kbuild",
        "nvidia.c": (ON_HOST / "nvidia.c").read_text(),
        "version": "@VERSION@\n",
        "license": f"{license_}\n",
    }
    return {f"usr/src/nvidia-@VERSION@/{path}": content for path, content in files.items()}


# What they hold; the others hold nothing.
HELD: dict[str, dict[str, str]] = {
    "libcuda1": _library("libcuda", "libcuda.c"),
    "libnvidia-ml1": _library("libnvidia-ml", "empty_library.c"),
    "libnvidia-ptxjitcompiler1": _library("libnvidia-ptxjitcompiler", "empty_library.c"),
    OPEN: _module_source("Dual MIT/GPL"),
    PROPRIETARY: _module_source("NVIDIA"),
    "nvidia-persistenced": {
        "usr/bin/nvidia-persistenced": "< nvidia-persistenced",
        "usr/lib/systemd/system/nvidia-persistenced.service": "< nvidia-persistenced.service",
    },
    "nvidia-smi": {"usr/bin/nvidia-smi": "< nvidia-smi"},
    "nvidia-modprobe": {"usr/bin/nvidia-modprobe": "< nvidia-modprobe"},
    "firmware-nvidia-gsp": {"usr/lib/firmware/nvidia/@VERSION@/gsp_ga10x.bin": "rehearsal\n"},
    "nvidia-kernel-support": {
        "usr/lib/modprobe.d/nvidia.conf": "options nvidia-drm modeset=1\n"
    },
}  # fmt: skip
_SCRIPTS = {OPEN: "dkms", PROPRIETARY: "dkms", "nvidia-persistenced": "nvidia-persistenced"}


def branch_of(version: str) -> str:
    """Return the branch of the driver VERSION ("580.95.05" -> "580")."""
    return version.split(".")[0]


def driver_packages(version: str) -> list[Package]:
    """Return every package of the driver VERSION."""
    values = {"version": version, "cuda": CUDA_OF.get(branch_of(version), "0")}
    return [
        Package(
            name=name,
            version=f"{version}-1",
            depends=depends.replace(" =", f" (= {version}-1)"),
            conflicts=conflicts,
            source="nvidia-graphics-drivers",
            files={
                path.replace("@VERSION@", version): content.replace("@VERSION@", version)
                for path, content in HELD.get(name, {}).items()
            },
            script=_SCRIPTS.get(name, ""),
            values=values,
        )
        for name, (depends, conflicts) in RELATIONS.items()
    ]


# -- the kernels

NOUVEAU = "kernel/drivers/gpu/drm/nouveau/nouveau.ko"


def newer_release(release: str) -> str:
    """Return the release of a kernel newer than RELEASE ("6.18.44-1" -> "6.19.1-1-amd64")."""
    match = re.match(r"(\d+)\.(\d+)", release)
    if match is None or not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", release):
        raise LabError(f"no package can be named after the running kernel {release!r}")
    return f"{match[1]}.{int(match[2]) + 1}.1-1-amd64"


def _kernel(release: str) -> list[Package]:
    version = f"{release.split('-')[0]}-1"
    modules, source = f"usr/lib/modules/{release}", f"usr/src/linux-headers-{release}"
    values = {"name": "nouveau", "license": "GPL and additional rights", "depends": ""}
    values |= {"vermagic": f"{release} SMP preempt mod_unload modversions ", "release": release}
    values |= {"alias": "pci:v000010DEd*sv*sd*bc03sc*i*"}
    image: Files = {
        f"boot/vmlinuz-{release}": "rehearsal\n",
        f"boot/config-{release}": "# rehearsal\nCONFIG_MODULES=y\n",
        f"{modules}/modules.order": f"{NOUVEAU}\n",
        f"{modules}/modules.builtin": "",
        f"{modules}/modules.builtin.modinfo": "",
        f"{modules}/{NOUVEAU}": "< nvidia.c",
    }
    headers: Files = {
        f"{source}/Makefile": "< headers.mk",
        f"{source}/include/vermagic": "@VERMAGIC@\n",
        f"{modules}/build": f"-> /{source}",
    }
    # Headers depend on the compiler that the kernel is built with, as the real ones do. Of dkms's
    # own relations that one is, from Debian 13 on, no more than recommended.
    needs = {"image": (image, "kmod"), "headers": (headers, "make, gcc")}
    found = []
    for kind, (files, depends) in needs.items():
        name = f"linux-{kind}-{release}"
        script = f"linux-{kind}"
        found += [
            Package(
                name=name, version=version, depends=depends, files=files, script=script,
                values=values,
            ),
            Package(name=f"linux-{kind}-amd64", version=version, depends=name),
        ]  # fmt: skip
    return found


def kernel_packages(release: str) -> list[Package]:
    """Return the distribution's packages: the running kernel RELEASE, a newer one, a desktop.

    The packages without a release in their names lead to the newest kernel.
    """
    desktop = Package(name=DESKTOP, version="1-1")
    return [*_kernel(release), *_kernel(newer_release(release)), desktop]


# -- CUDA

TOOLKIT = "13.0.3"
_TARGET = "targets/x86_64-linux"
_CONFIG, _CONFIG_13 = "cuda-toolkit-config-common", "cuda-toolkit-13-0-config-common"
# Package -> the wheel its files are in, and what it needs.
WHEELS = {
    "cuda-nvcc-13-0": ("nvidia-cuda-nvcc==13.0.88", "cuda-crt-13-0, libnvvm-13-0"),
    "libnvvm-13-0": ("nvidia-nvvm==13.0.88", _CONFIG_13),
    "cuda-crt-13-0": ("nvidia-cuda-crt==13.0.88", _CONFIG_13),
    "cuda-cccl-13-0": ("nvidia-cuda-cccl==13.0.85", _CONFIG_13),
    "cuda-cudart-13-0": ("nvidia-cuda-runtime==13.0.96", _CONFIG_13),
}
_RUNTIME = "libcudart.so.13"  # in cuda-cudart-13-0; the rest of the wheel is in its -dev
_ROOT, _NEWER = "usr/local/cuda-13.0", "usr/local/cuda-13.1"


def _unpacked(wheel: str, wheels: Path, work: Path) -> dict[str, Path]:
    """Unpack a wheel, and return its files by where they are on a host."""
    files = {}
    start = wheel.replace("-", "_").replace("==", "-")
    with zipfile.ZipFile(next(wheels.glob(f"{start}-*.whl"))) as archive:
        for entry in archive.namelist():
            part = entry.removeprefix("nvidia/cu13/")
            if part == entry or entry.endswith("/"):
                continue
            inner = f"{_TARGET}/{part}" if part.startswith(("include/", "lib/")) else part
            files[f"{_ROOT}/{inner}"] = Path(archive.extract(entry, work))
    return files


def cuda_packages(wheels: Path, work: Path) -> list[Package]:
    """Return the CUDA packages.

    + wheels: the folder with the wheels; work: a folder in which they are unpacked
    """

    def package(name: str, version: str, depends: str, files: Files, release: str = "") -> Package:
        """Return one; that of a RELEASE has /usr/local/cuda lead to it, or to another one."""
        values = {"release": release, "priority": release.replace(".", "")}
        script = "cuda-alternatives" if release else ""
        return Package(
            name=name, version=f"{version}-1", depends=depends, files=files, script=script,
            values=values,
        )  # fmt: skip

    def about(version: str) -> str:
        known = {"cuda": {"name": "CUDA SDK (rehearsal)", "version": version}}
        return json.dumps(known) + "\n"

    found = []
    for name, (wheel, depends) in WHEELS.items():
        files: Files = _unpacked(wheel, wheels, work / name)
        version = wheel.split("==")[1]
        if name == "cuda-cudart-13-0":
            rest: Files = {p: c for p, c in files.items() if _RUNTIME not in p}
            rest = {**rest, f"{_ROOT}/{_TARGET}/lib/libcudart.so": f"-> {_RUNTIME}"}
            needs = f"{name} (= {version}-1), cuda-driver-dev-13-0"
            found.append(package("cuda-cudart-dev-13-0", version, needs, rest))
            files = {p: c for p, c in files.items() if _RUNTIME in p}
        found.append(package(name, version, depends, files))
    return [
        *found,
        package(_CONFIG, TOOLKIT, "", {
            "etc/ld.so.conf.d/000_cuda.conf": f"/usr/local/cuda/{_TARGET}/lib\n",
        }),
        package(_CONFIG_13, TOOLKIT, _CONFIG, {
            f"{_ROOT}/include": f"-> {_TARGET}/include",
            f"{_ROOT}/lib64": f"-> {_TARGET}/lib",
        }, "13.0"),
        package("cuda-driver-dev-13-0", "13.0.96", _CONFIG_13, {
            f"{_ROOT}/{_TARGET}/lib/stubs/libcuda.so": "< libcuda_stub.c",
        }),
        package("cuda-toolkit-13-0", TOOLKIT, "cuda-cudart-dev-13-0, " + ", ".join(WHEELS), {
            f"{_ROOT}/version.json": about(TOOLKIT),
        }),
        package("cuda-toolkit-13-1", "13.1.1", _CONFIG, {
            f"{_NEWER}/bin/nvcc": "< nvcc-13.1",
            f"{_NEWER}/version.json": about("13.1.1"),
            f"{_NEWER}/{_TARGET}/lib/rehearsal": "",
            f"{_NEWER}/lib64": f"-> {_TARGET}/lib",
        }, "13.1"),
    ]  # fmt: skip


# -- all of them: built once on a machine, used by its labs


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """The packages that were built, and the running kernel's files."""

    folder: Path

    @property
    def kernel(self) -> Package:
        """The package of the running kernel."""
        return _kernel(os.uname().release)[0]

    @property
    def kernel_tree(self) -> Path:
        """The files of the running kernel, as they are on a machine."""
        return self.folder / "kernel"

    def of(self, part: str) -> list[Path]:
        """Return the files of PART: "cuda", "kernels" or a driver's version."""
        return sorted((self.folder / part).glob("*.deb"))


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


def _wheels(say: Say) -> Path:
    """Return the folder with nvcc's wheels, downloaded first where the cache has none."""
    wanted = [wheel for wheel, _ in WHEELS.values()]
    folder = cache_folder() / f"cuda-wheels-{_digest(*wanted)}"
    if not folder.exists():
        say("downloading nvcc 13.0 (105 MB, once) ...")
        with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as name:
            download(wanted, Path(name, "wheels"), "--no-deps")
            Path(name, "wheels").rename(folder)
    return folder


def _build(packages: Iterable[Package], folder: Path) -> None:
    folder.mkdir(parents=True)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        list(pool.map(lambda package: package.build(folder), packages))


def ensure_archive(say: Say) -> Archive:
    """Return the archive, built first where the cache has none. Raises LabError."""
    release, sources = os.uname().release, sorted(p for p in ON_HOST.iterdir() if p.is_file())
    texts = [f"{path.name}\0{path.read_text()}" for path in (Path(__file__), *sources)]
    folder = cache_folder() / f"nvidia-{_digest(release, *texts)}"
    with locked(cache_folder() / "nvidia.lock"):
        if folder.exists():
            return Archive(folder=folder)
        for old in folder.parent.glob("nvidia-*.part"):
            remove_tree(old)  # of a build that was killed
        say("building the simulated NVIDIA packages (about 20 s, once) ...")
        begun = time.monotonic()
        part = Path(tempfile.mkdtemp(prefix="nvidia-", suffix=".part", dir=folder.parent))
        try:
            made = Archive(folder=part / "archive")
            _build(kernel_packages(release), made.folder / "kernels")
            made.kernel.lay_out(made.kernel_tree)
            for version in DRIVERS:
                _build(driver_packages(version), made.folder / version)
            _build(cuda_packages(_wheels(say), part / "work"), made.folder / "cuda")
            made.folder.rename(folder)
        finally:
            remove_tree(part)
        say(f"the packages are ready after {time.monotonic() - begun:.0f} s")
    return Archive(folder=folder)
