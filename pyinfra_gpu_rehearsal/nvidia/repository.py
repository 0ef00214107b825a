"""NVIDIA's repository and the distribution's kernels, as the hosts of one lab see them.

A repository goes wrong in the ways of KINDS, each as users of NVIDIA's have met it.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel

from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu_rehearsal.apt_repository import NAME, ensure_key, write_repository
from pyinfra_gpu_rehearsal.base_image import BaseImage, os_release
from pyinfra_gpu_rehearsal.commands import LabError, Say, empty_folder, write_atomically
from pyinfra_gpu_rehearsal.nvidia.packages import (
    DESKTOP,
    DRIVERS,
    OPEN,
    Package,
    branch_of,
    driver_packages,
    ensure_archive,
    newer_release,
)

ARCHITECTURE = "x86_64"
KEYRING = "usr/share/keyrings/cuda-archive-keyring.gpg"
NEXT_BRANCH = "595.71.05"
HEADS = ("nvidia-driver-cuda", "nvidia-driver")


def _stub(head: Package, kernel: str) -> Package:
    names = ("libcuda1", "libnvidia-ml1", "nvidia-smi", OPEN)
    depends = ", ".join(f"{name} (= {NEXT_BRANCH}-1)" for name in names)
    return replace(head, depends=depends, conflicts="", files={}, script="")


def _removes(head: Package, kernel: str) -> Package:
    return replace(head, conflicts=", ".join(filter(None, (head.conflicts, DESKTOP))))


def _pulls(head: Package, kernel: str) -> Package:
    return replace(head, depends=f"{head.depends}, {kernel}")


# What each does to a host that asks plain apt for the newest driver of the branch, and what it does
# to the driver's head packages.
KINDS: dict[str, Callable[[Package, str], Package] | None] = {
    "transitional": _stub,  # the newest driver's packages are stubs that lead to the next branch
    "vanished": None,  # the index names a package that is not there
    "hash-mismatch": None,  # a package is not what the index says
    "expired-key": None,  # the signature has expired
    "replaced-key": None,  # the repository is signed with another key
    "removes-desktop": _removes,  # the driver conflicts with a package of the user's
    "pulls-kernel": _pulls,  # the driver depends on a newer kernel
}


def carries(distribution: str, version: str) -> bool:
    """Tell whether a distribution's repository may have a driver of that branch at all."""
    known = catalogue().repositories.releases.values()
    (carried,) = (each for each in known if each.distro == distribution)
    return carried.carries(int(branch_of(version)))


def first_offer(distribution: str) -> tuple[str, ...]:
    """Return the drivers that a distribution's repository offers at first.

    A repository begins with the branch of its day: that for Debian 13 has no 580.
    """
    return tuple(version for version in DRIVERS if carries(distribution, version))[:2]


def newest(versions: Iterable[str]) -> str:
    """Return the newest of the driver VERSIONS."""
    return max(versions, key=lambda version: [int(part) for part in version.split(".")])


class Offer(BaseModel):
    """What one lab's repositories were made of, and what they offer now.

    + distribution: "debian12"; archive: the folder of the packages; server: the lab's
    + versions: the drivers on offer; bad: a key of KINDS, or ""
    + newer_kernel: whether the distribution's kernel of no special version is the newer one
    """

    distribution: str
    archive: Path
    server: str
    versions: tuple[str, ...]
    bad: str = ""
    newer_kernel: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaRepository:
    """What is on offer in one lab.

    + folder: the lab's own files for this; www: what its server serves; server: its address.
    """

    folder: Path
    www: Path
    server: str

    @property
    def url(self) -> str:
        """The repository, with the placeholders {distro} and {arch}."""
        return f"{self.server}/nvidia/{{distro}}/{{arch}}/"

    @property
    def key_fingerprint(self) -> str:
        """The fingerprint of the lab's own key, whoever signs at the moment (40 digits)."""
        return (self._key / "fingerprint").read_text()

    @property
    def keyring_sha256(self) -> str:
        """The digest of the package cuda-keyring that is on offer."""
        (package,) = self._place(self._offered).glob("cuda-keyring_*.deb")
        return hashlib.sha256(package.read_bytes()).hexdigest()

    @property
    def archive(self) -> Path:
        """The folder of all packages there could be; see packages.ensure_archive."""
        return self._offered.archive

    @property
    def _key(self) -> Path:
        return self.folder / "key"

    @property
    def _file(self) -> Path:
        return self.folder / "offer.json"

    @property
    def _offered(self) -> Offer:
        try:
            return Offer.model_validate_json(self._file.read_text())
        except FileNotFoundError:
            raise LabError(
                "no host of this lab has a simulated GPU:"
                " `pyinfra-gpu rehearsal up 2 --machine '2x RTX 5090'` makes some"
            ) from None

    def _place(self, offer: Offer) -> Path:
        """Return the folder that is served."""
        return self.www / "nvidia" / offer.distribution / ARCHITECTURE

    def ensure(self, image: BaseImage, say: Say) -> None:
        """Make the repositories where they are not there, or were made of something else."""
        release = os_release(image.root / "usr/lib/os-release")
        now = Offer(
            distribution=f"debian{release['VERSION_ID']}",
            archive=ensure_archive(say),
            server=self.server,
            versions=first_offer(f"debian{release['VERSION_ID']}"),
        )
        if self._file.exists() and (old := self._offered).distribution == now.distribution:
            now = old.model_copy(update={"archive": now.archive, "server": now.server})
        ensure_key(self._key, "pyinfra-gpu rehearsal: NVIDIA's key")
        self._make(now)

    def offer(self, *versions: str, bad: str = "", newer_kernel: bool = False) -> None:
        """Offer the drivers VERSIONS and no others; none given: those that were there at first.

        + bad: the way in which the repository is wrong from now on, a key of KINDS; "" = it is not
        + newer_kernel: whether linux-image-amd64 and linux-headers-amd64 lead to the newer kernel

        Raises LabError for a version that was not built, or that the real one cannot have, and
        where there is no such way to be wrong.
        """
        offered = self._offered
        for version in versions:
            if version not in DRIVERS:
                known = ", ".join(DRIVERS)
                raise LabError(f"there is no simulated driver {version}: there are {known}")
            if not carries(offered.distribution, version):
                where = f"NVIDIA's repository for {offered.distribution}"
                raise LabError(f"{where} has no driver {version}")
        if bad and bad not in KINDS:
            known = ", ".join(KINDS)
            raise LabError(f"a repository cannot go bad in the way {bad!r}: there are {known}")
        asked = {"versions": versions or first_offer(offered.distribution), "bad": bad}
        self._make(offered.model_copy(update={**asked, "newer_kernel": newer_kernel}))

    def offer_newer(self) -> str:
        """Offer the next newer driver as well, as NVIDIA does every few weeks; return its version.

        Raises LabError where there is none.
        """
        versions = self._offered.versions
        more = [each for each in DRIVERS if newest((each, *versions)) not in versions]
        if not more:
            raise LabError(f"no simulated driver is newer than {newest(versions)}")
        self.offer(*versions, more[0])
        return more[0]

    # -- writing

    def _make(self, offer: Offer) -> None:
        """Write the repositories as OFFER says, where they are not so.

        To sign them takes as much of a processor as a look at a host.
        """
        text = offer.model_dump_json(indent=1) + "\n"
        if self._file.exists() and self._file.read_text() == text:
            return
        self._file.unlink(missing_ok=True)  # it says what is there
        self._write_kernels(offer)
        self._write_driver(offer)
        write_atomically(self._file, text)

    def _write_kernels(self, offer: Offer) -> None:
        leading = f"-amd64_{newer_release(platform.release()).split('-')[0]}-1_amd64.deb"
        hidden = () if offer.newer_kernel else (f"linux-image{leading}", f"linux-headers{leading}")
        kernels = [p for p in offer.archive.glob("kernels/*.deb") if p.name not in hidden]
        folder = self.www / "kernels"
        if {path.resolve() for path in folder.glob("*.deb")} != {*kernels}:
            write_repository(folder, kernels, NAME, NAME)

    def _write_driver(self, offer: Offer) -> None:
        place, special = self._place(offer), self.folder / "special"
        kind, version = offer.bad, newest(offer.versions)
        empty_folder(special)
        key = self._key
        if kind == "replaced-key":
            key = special / "key"
            ensure_key(key, "pyinfra-gpu rehearsal: another key")
        versions = {*offer.versions, *((NEXT_BRANCH,) if kind == "transitional" else ())}
        packages = {
            p.name: p for v in (*versions, "cuda") for p in offer.archive.glob(f"{v}/*.deb")
        }
        made = [self._keyring(offer, key)]
        if change := KINDS.get(kind):
            kernel = f"linux-image-{newer_release(platform.release())}"
            made += [change(p, kernel) for p in driver_packages(version) if p.name in HEADS]
        packages |= {path.name: path for path in (each.build(special) for each in made)}
        expired = kind == "expired-key"
        write_repository(place, packages.values(), "NVIDIA", "NVIDIA CUDA", key, expired=expired)
        if kind in ("vanished", "hash-mismatch"):
            path = place / f"libcuda1_{version}-1_amd64.deb"
            content = path.read_bytes()
            path.unlink()
            if kind == "hash-mismatch":
                path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    def _keyring(self, offer: Offer, key: Path) -> Package:
        url = self.url.format(distro=offer.distribution, arch=ARCHITECTURE)
        source = f"etc/apt/sources.list.d/cuda-{offer.distribution}-{ARCHITECTURE}.list"
        pin = "Package: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 600\n"
        return Package(
            name="cuda-keyring",
            version="1.1-1",
            architecture="all",
            files={
                KEYRING: key / "public.gpg",
                source: f"deb [signed-by=/{KEYRING}] {url} /\n",
                "etc/apt/preferences.d/cuda-repository-pin-600": pin,
            },
        )
