"""NVIDIA's repository and the distribution's kernels, as the hosts of one lab see them."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu_rehearsal.apt_repository import NAME, FlatRepository, SigningKey
from pyinfra_gpu_rehearsal.aptconfig import os_release
from pyinfra_gpu_rehearsal.base_image import BaseImage, Say
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.nvidia.archive import DRIVERS, Archive, ensure_archive
from pyinfra_gpu_rehearsal.nvidia.bad_repository import KINDS, Offer, newest, spoil_file, spoiled
from pyinfra_gpu_rehearsal.nvidia.debs import Package, build
from pyinfra_gpu_rehearsal.nvidia.driver_packages import branch_of
from pyinfra_gpu_rehearsal.nvidia.kernels import package_version
from pyinfra_gpu_rehearsal.server import CLOSED
from pyinfra_gpu_rehearsal.state import write_atomically

DEFAULT = ("580.82.07", "580.95.05")
ARCHITECTURE = "x86_64"
KEYRING = "usr/share/keyrings/cuda-archive-keyring.gpg"
PIN = """\
Package: *
Pin: release l=NVIDIA CUDA
Pin-Priority: 600
"""


def offered(distribution: str) -> tuple[str, ...]:
    """Return the drivers that a distribution's repository offers at first.

    A repository begins with the branch of its day: that for Debian 13 has no 580.
    """
    fit = [version for version in DEFAULT if carries(distribution, version)]
    return tuple(fit or [version for version in DRIVERS if carries(distribution, version)])


def carries(distribution: str, version: str) -> bool:
    """Tell whether a distribution's repository may have a driver of that branch at all."""
    known = catalogue().repositories.releases.values()
    (carried,) = (each for each in known if each.distro == distribution)
    return carried.carries(int(branch_of(version)))


def distribution_of(image: BaseImage) -> str:
    """Return what NVIDIA calls the distribution of IMAGE ("debian12").

    Raises LabError where the simulated packages are not made for it.
    """
    if platform.machine() != ARCHITECTURE:
        raise LabError(f"a simulated GPU needs {ARCHITECTURE}, and this is {platform.machine()}")
    release = os_release((image.root / "usr/lib/os-release").read_text())
    if release.get("ID") != "debian" or not release.get("VERSION_ID"):
        name = release.get("PRETTY_NAME", "unknown")
        raise LabError(f"a simulated GPU needs hosts with Debian, and this machine makes {name}")
    return f"debian{release['VERSION_ID']}"


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What one lab's repositories were made for, and what they offer now.

    + distribution: "debian12"; archive: the folder of the packages; server: its address
    + versions: the drivers on offer; bad: a key of bad_repository.KINDS, or ""
    + newer_kernel: whether the distribution's kernel of no special version is the newer one
    """

    distribution: str
    archive: str
    server: str
    versions: tuple[str, ...] = DEFAULT
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

    # -- what others need to know

    @property
    def url(self) -> str:
        """The repository, with the placeholders {distro} and {arch}."""
        return f"{self.server}/nvidia/{{distro}}/{{arch}}/"

    @property
    def key_fingerprint(self) -> str:
        """The fingerprint of the lab's own key, whoever signs at the moment (40 digits)."""
        return self._key.fingerprint

    @property
    def keyring_sha256(self) -> str:
        """The digest of the package cuda-keyring that is on offer."""
        content = (self.place / "cuda-keyring_1.1-1_all.deb").read_bytes()
        return hashlib.sha256(content).hexdigest()

    @property
    def place(self) -> Path:
        """The folder that is served."""
        return self.www / "nvidia" / self._state.distribution / ARCHITECTURE

    @property
    def archive(self) -> Archive:
        """All packages there could be."""
        return Archive(folder=Path(self._state.archive))

    @property
    def distribution_key(self) -> SigningKey:
        """The key of the distribution's kernels."""
        return SigningKey(self.folder / "distribution-key")

    @property
    def _key(self) -> SigningKey:
        return SigningKey(self.folder / "key")

    @property
    def _file(self) -> Path:
        return self.folder / "offer.json"

    @property
    def _state(self) -> State:
        try:
            known = json.loads(self._file.read_text())
        except FileNotFoundError:
            raise LabError(
                "no host of this lab has a simulated GPU:"
                " `pyinfra-gpu rehearsal up 2 --machine '2x RTX 5090'` makes some"
            ) from None
        return State(**{**known, "versions": tuple(known["versions"])})

    def _offer(self, state: State) -> None:
        """Write the repositories as STATE says, where they are not so.

        To sign them takes as much of a processor as a look at a host.
        """
        text = json.dumps(asdict(state), indent=1) + "\n"
        if self._file.exists() and self._file.read_text() == text and self.place.exists():
            return
        write_atomically(self._file, text)
        try:
            self._write(state)
        except BaseException:
            self._file.unlink()  # it says what is there
            raise

    # -- making

    def ensure(self, image: BaseImage, say: Say) -> None:
        """Make the repositories where they are not there, or were made for something else."""
        new = State(
            distribution=distribution_of(image),
            archive=str(ensure_archive(image, say).folder),
            server=self.server,
        )
        new = replace(new, versions=offered(new.distribution))
        if self._file.exists():
            old = self._state
            same = replace(new, versions=old.versions, bad=old.bad, newer_kernel=old.newer_kernel)
            if same == old:
                return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._key.ensure("pyinfra-gpu rehearsal: NVIDIA's key")
        self.distribution_key.ensure("pyinfra-gpu rehearsal: the distribution's key")
        self._offer(new)

    # -- what is on offer

    def publish(self, *versions: str) -> None:
        """Offer the drivers VERSIONS and no others; none given: those that were there at first.

        Raises LabError for a version that was not built, or that the real one cannot have.
        """
        distribution = self._state.distribution
        for version in versions:
            if version not in DRIVERS:
                known = ", ".join(DRIVERS)
                raise LabError(f"there is no simulated driver {version}: there are {known}")
            if not carries(distribution, version):
                raise LabError(f"NVIDIA's repository for {distribution} has no driver {version}")
        self._offer(replace(self._state, versions=versions or offered(distribution)))

    def go_bad(self, kind: str) -> None:
        """Let the repository go wrong in the way KIND (see bad_repository.KINDS) until `restore`.

        Raises LabError where there is no such way.
        """
        if kind not in KINDS:
            raise LabError(
                f"a repository cannot go bad in the way {kind!r}: there are {', '.join(KINDS)}"
            )
        before = self._state
        try:
            self._offer(replace(before, bad=kind))
        except LabError:
            self._offer(before)
            raise

    def restore(self) -> None:
        """Let the repository be sound again; the versions on offer stay."""
        self._offer(replace(self._state, bad=""))

    def offer_newer_kernel(self, on: bool = True) -> None:
        """Let linux-image-amd64 and linux-headers-amd64 lead to the newer kernel, or not."""
        self._offer(replace(self._state, newer_kernel=on))

    # -- writing

    def _keyring(self, key: SigningKey, special: Path) -> Path:
        distribution = self._state.distribution
        url = self.url.format(distro=distribution, arch=ARCHITECTURE)
        package = Package(
            name="cuda-keyring",
            version="1.1-1",
            architecture="all",
            description="the key of the simulated repository",
            files={
                KEYRING: key.public,
                f"etc/apt/sources.list.d/cuda-{distribution}-{ARCHITECTURE}.list": (
                    f"deb [signed-by=/{KEYRING}] {url} /\n"
                ),
                "etc/apt/preferences.d/cuda-repository-pin-600": PIN,
            },
        )
        return build(package, special)

    def _kernel_packages(self) -> list[Path]:
        """Return the distribution's packages, without those that lead to a newer kernel."""
        newer = package_version(self.archive.kernels.newer)
        hidden = set()
        if not self._state.newer_kernel:
            hidden = {f"linux-{kind}-amd64_{newer}_amd64.deb" for kind in ("image", "headers")}
        return [path for path in self.archive.of("kernels") if path.name not in hidden]

    def _write(self, state: State) -> None:
        archive, versions, kind = self.archive, state.versions, state.bad
        special = self.folder / "special"
        shutil.rmtree(special, ignore_errors=True)
        special.mkdir()
        key, signer = self._key, self._key
        if kind == "expired-key":
            key = key.expired_copy(special / "key")
        elif kind == "replaced-key":
            key = signer = SigningKey(special / "key")
            key.ensure("pyinfra-gpu rehearsal: another key")
        drivers = [path for version in versions for path in archive.of(version)]
        drivers += [*archive.of("dkms"), *archive.of("cuda"), *archive.of("pins")]
        drivers += [self._keyring(key, special)]
        offer = Offer(nvidia=tuple(drivers), distribution=tuple(self._kernel_packages()))
        if kind:
            offer = spoiled(kind, offer, versions, archive, special)
        nvidia = FlatRepository(folder=self.place, origin="NVIDIA", label="NVIDIA CUDA")
        nvidia.write(offer.nvidia, signer, expired=kind == "expired-key")
        kernels = FlatRepository(folder=self.www / "kernels", origin=NAME, label=NAME)
        if not kernels.offers(offer.distribution):
            kernels.write(offer.distribution, self.distribution_key)
        spoil_file(kind, self.place, newest(versions))
        if kind == "down":
            (self.place / CLOSED).touch()
