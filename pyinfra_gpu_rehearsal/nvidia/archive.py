"""Everything the simulated repositories can offer: built once on a machine, used by its labs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu_rehearsal.base_image import BaseImage, Say
from pyinfra_gpu_rehearsal.nvidia import cuda_packages, driver_packages
from pyinfra_gpu_rehearsal.nvidia.debs import Package, build, repack
from pyinfra_gpu_rehearsal.nvidia.kernels import Kernels
from pyinfra_gpu_rehearsal.state import cache_folder, locked

DRIVERS = ("580.65.06", "580.82.07", "580.95.05", "580.105.08", "595.71.05")
DKMS = "1:3.2.1-1"
"""The version of NVIDIA's own dkms: its epoch beats every distribution's."""
DONE = "archive.json"
MAKERS = ("archive", "cuda_packages", "debs", "driver_packages", "kernels")


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """The packages that were built, and the running kernel's files."""

    folder: Path

    @property
    def kernels(self) -> Kernels:
        """The kernels of the simulated machines."""
        return Kernels.of_this_machine(self.folder / "kernel")

    def of(self, part: str) -> list[Path]:
        """Return the files of PART: "cuda", "dkms", "pins", "kernels" or a driver's version."""
        return sorted((self.folder / part).glob("*.deb"))


def _digest(base: str) -> str:
    """Return the archive's name: it depends on all that is packed and on what runs here."""
    here = Path(__file__).parent
    sources = [here / f"{name}.py" for name in MAKERS]
    sources += [path for path in (here / "on_host").iterdir() if path.is_file()]
    digest = hashlib.sha256(f"{base} {os.uname().release}".encode())
    for path in sorted(sources):
        digest.update(f"\0{path.name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _ensure_wheels(say: Say) -> Path:
    """Return the folder with nvcc's wheels, downloaded first where the cache has none."""
    wanted = "\0".join(wheel for wheel, _ in cuda_packages.WHEELS.values())
    key = hashlib.sha256(wanted.encode()).hexdigest()[:12]
    folder = cache_folder() / f"cuda-wheels-{key}"
    if not folder.exists():
        say("downloading nvcc 13.0 (105 MB, once) ...")
        with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as name:
            wheels = Path(name, "wheels")
            cuda_packages.download_wheels(wheels)
            wheels.rename(folder)
    return folder


def _build(packages: Iterable[Package], folder: Path) -> None:
    folder.mkdir(parents=True)
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for _ in pool.map(lambda package: build(package, folder), packages):
            pass


def _repack_dkms(distributions: Path, folder: Path) -> None:
    folder.mkdir()
    (original,) = distributions.glob("dkms_*.deb")
    repack(original, folder, Version=DKMS, Provides="", Breaks="")


def _build_all(part: Path, work: Path, image: BaseImage, say: Say) -> None:
    kernels = Kernels.of_this_machine(part / "kernel")
    kernels.lay_out_running()
    _build(kernels.packages(work), part / "kernels")
    _build(driver_packages.pin_packages(DRIVERS), part / "pins")
    _repack_dkms(image.repository / "pool", part / "dkms")
    for version in DRIVERS:
        _build(driver_packages.driver_packages(version, work), part / version)
    wheels = _ensure_wheels(say)
    _build(cuda_packages.cuda_packages(wheels, work), part / "cuda")


def ensure_archive(image: BaseImage, say: Say) -> Archive:
    """Return the archive, built first where the cache has none.

    + image: the base image whose machines the packages are for.

    Raises LabError where it cannot be built.
    """
    folder = cache_folder() / f"nvidia-{_digest(image.digest)}"
    with locked(cache_folder() / "nvidia.lock"):
        if not (folder / DONE).exists():
            for old in folder.parent.glob("nvidia-*.part"):
                shutil.rmtree(old)  # of a build that was killed
            shutil.rmtree(folder, ignore_errors=True)
            say("building the simulated NVIDIA packages (about 20 s, once) ...")
            begun = time.monotonic()
            work = Path(tempfile.mkdtemp(prefix="nvidia-", suffix=".part", dir=folder.parent))
            try:
                (work / "archive").mkdir()
                (work / "work").mkdir()
                _build_all(work / "archive", work / "work", image, say)
                (work / "archive" / DONE).write_text(json.dumps({"drivers": DRIVERS}) + "\n")
                (work / "archive").rename(folder)
            finally:
                shutil.rmtree(work)
            say(f"the packages are ready after {time.monotonic() - begun:.0f} s")
    return Archive(folder=folder)
