"""The builder of the simulated packages, which packages.yaml lists.

What a package holds is the simulated part, beside the real nvcc 13.0 from NVIDIA's wheels. The
running kernel is the real machine's, whose release is whatever `uname -r` says; a newer one can be
installed, and is never booted.
"""

from __future__ import annotations

import os
import re
import tempfile
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml

from pyinfra_gpu_rehearsal.apt_repository import pack
from pyinfra_gpu_rehearsal.commands import LabError, Say, cached, run
from pyinfra_gpu_rehearsal.wheelhouse import download

TABLE = Path(__file__).with_name("packages.yaml")
ON_HOST = Path(__file__).parent / "on_host"
"""Programs and files for the hosts, and sources of what is compiled for them."""

DRIVERS = ("580.82.07", "580.95.05", "580.105.08", "595.71.05")
# What the CUDA part of a driver says it is: the release that the branch was made with.
CUDA_OF = {"580": "13000", "595": "13020"}
TOOLKIT = "13.0.3"
OPEN, DESKTOP = "nvidia-kernel-open-dkms", "rehearsal-desktop"


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """One package, with the fields of packages.yaml; a file may also be one of this machine."""

    name: str
    version: str
    architecture: str = "amd64"
    source: str = ""
    depends: str = ""
    conflicts: str = ""
    script: str = ""
    wheel: str = ""
    only: str = ""
    without: str = ""
    files: Mapping[str, str | Path] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)

    def control(self) -> str:
        """Return the text of its control file."""
        fields = {
            "Package": self.name,
            "Source": self.source,
            "Version": self.version,
            "Architecture": self.architecture,
            "Maintainer": "pyinfra-gpu rehearsal <rehearsal@localhost>",
            "Depends": self.depends,
            "Conflicts": self.conflicts,
            "Description": f"rehearsal: {self.name}",
        }
        return "".join(f"{key}: {value}\n" for key, value in fields.items() if value)

    def lay_out(self, tree: Path, wheels: Path | None = None) -> None:
        """Write what it holds into the folder TREE.

        + wheels: the folder of NVIDIA's wheels
        """
        if self.wheel and wheels:
            self._unpack(wheels, tree)
        for name, content in self.files.items():
            path, how = tree / name, "" if isinstance(content, Path) else content[:3]
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                path.write_bytes(content.read_bytes())
            elif how == "-> ":
                path.symlink_to(content[3:])
            elif how == "cc ":
                self._compile(ON_HOST / content[3:], path)
            elif how[:2] == "< ":
                path.write_text(filled((ON_HOST / content[2:]).read_text(), self.values))
            else:
                path.write_text(content)
        for path in (each for each in tree.rglob("*") if each.is_file() and not each.is_symlink()):
            path.chmod(0o755 if path.parent.name == "bin" else 0o644)

    def _unpack(self, wheels: Path, tree: Path) -> None:
        """Unpack its part of its wheel to where the files are on a host."""
        name = self.wheel.replace("-", "_").replace("==", "-")
        with zipfile.ZipFile(next(wheels.glob(f"{name}-*.whl"))) as archive:
            for entry in archive.namelist():
                part = entry.removeprefix("nvidia/cu13/")
                other = self.only not in part or (self.without and self.without in part)
                if part == entry or entry.endswith("/") or other:
                    continue
                inner = f"targets/x86_64-linux/{part}" if part[:4] in ("incl", "lib/") else part
                path = tree / "usr/local/cuda-13.0" / inner
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(entry))

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

    def build(self, folder: Path, wheels: Path | None = None) -> Path:
        """Make its file in FOLDER, and beside it (.stanza) its entry in an index."""
        with tempfile.TemporaryDirectory(prefix="pgpu-deb-", dir=folder) as name:
            tree = Path(name, "tree")
            tree.mkdir(mode=0o755)
            self.lay_out(tree, wheels)
            meta = {"control": self.control()}
            if settings := [f"/{name}\n" for name in self.files if name.startswith("etc/")]:
                meta["conffiles"] = "".join(settings)
            if any(tree.rglob("*.so*")):
                meta["triggers"] = "activate-noawait ldconfig\n"
            for part in ("postinst", "prerm", "postrm"):
                script = ON_HOST / f"{self.script}.{part}"
                if script.exists():
                    meta[part] = "#!/bin/sh\nset -e\n" + filled(script.read_text(), self.values)
            (tree / "DEBIAN").mkdir()
            for part, text in meta.items():
                (tree / "DEBIAN" / part).write_text(text)
                (tree / "DEBIAN" / part).chmod(0o755)
            file = f"{self.name}_{self.version}_{self.architecture}.deb"
            return pack(tree, folder / file, compress=bool(self.wheel))


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return TEXT with @KEY@ replaced by the value of that key."""
    return re.sub(r"@([A-Z]+)@", lambda key: values.get(key[1].lower(), key[0]), text)


def packages(part: str, version: str, values: Mapping[str, str], source: str = "") -> list[Package]:
    """Return the packages of a PART of the table.

    + version: of those that have none of their own; source: the name of their source
    """
    found = []
    for name, fields in yaml.safe_load(filled(TABLE.read_text(), values))[part].items():
        own = {**values, **fields.pop("values", {})}
        files = {path: filled(text, own) for path, text in fields.pop("files", {}).items()}
        wheel = f"{fields['wheel'].split('==')[1]}-1" if "wheel" in fields else version
        known = fields.pop("version", wheel)
        depends = fields.pop("depends", "").replace(" =", f" (= {known})")
        found.append(
            Package(
                name=name, version=known, depends=depends, files=files, values=own, source=source,
                **fields,
            )
        )  # fmt: skip
    return found


def branch_of(version: str) -> str:
    """Return the branch of the driver VERSION ("580.95.05" -> "580")."""
    return version.split(".")[0]


def driver_packages(version: str) -> list[Package]:
    """Return every package of the driver VERSION."""
    values = {"version": version, "cuda": CUDA_OF.get(branch_of(version), "0")}
    return packages("driver", f"{version}-1", values, source="nvidia-graphics-drivers")


def newer_release(release: str) -> str:
    """Return the release of a kernel newer than RELEASE ("6.18.44-1" -> "6.19.1-1-amd64")."""
    match = re.match(r"(\d+)\.(\d+)", release)
    if match is None or not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", release):
        raise LabError(f"no package can be named after the running kernel {release!r}")
    return f"{match[1]}.{int(match[2]) + 1}.1-1-amd64"


def _kernel(release: str) -> list[Package]:
    return packages("kernel", f"{release.split('-')[0]}-1", {"release": release})


def running_kernel() -> Package:
    """Return the package of the running kernel."""
    return _kernel(os.uname().release)[0]


def ensure_archive(say: Say) -> Path:
    """Return the folder of all packages, built first where the cache has none. Raises LabError.

    They lie in `cuda`, `kernels`, and a folder for each driver's version. `kernel` is what the
    running kernel has on a machine.
    """
    release = os.uname().release
    parts = {version: driver_packages(version) for version in DRIVERS}
    parts["cuda"] = packages("cuda", f"{TOOLKIT}-1", {})
    # The distribution's packages: the running kernel, a newer one, and what a user has.
    parts["kernels"] = [*_kernel(release), *_kernel(newer_release(release))]
    parts["kernels"] += packages("others", "1-1", {})
    wanted = sorted({package.wheel for package in parts["cuda"] if package.wheel})
    doing = "downloading nvcc 13.0, 105 MB"
    wheels = cached("cuda-wheels", wanted, lambda f: download(wanted, f, "--no-deps"), say, doing)

    def build(folder: Path) -> None:
        running_kernel().lay_out(folder / "kernel")
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            for part, made in parts.items():
                (folder / part).mkdir()
                list(pool.map(partial(Package.build, folder=folder / part, wheels=wheels), made))

    sources = (Path(__file__), TABLE, *sorted(path for path in ON_HOST.iterdir() if path.is_file()))
    key = [release, *(f"{path.name}\0{path.read_text()}" for path in sources)]
    doing = "building the simulated NVIDIA packages, which takes 20 s"
    return cached("nvidia", key, build, say, doing)
