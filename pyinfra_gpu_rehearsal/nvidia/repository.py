"""NVIDIA's repository and the distribution's kernels, as the hosts of one lab see them.

A repository goes wrong in the ways of KINDS, each as users of NVIDIA's have met it.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu_rehearsal.apt_repository import NAME, SigningKey, write_flat
from pyinfra_gpu_rehearsal.base_image import BaseImage, os_release
from pyinfra_gpu_rehearsal.commands import Say, remove_tree
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.nvidia.packages import (
    DESKTOP,
    DRIVERS,
    OPEN,
    Archive,
    Package,
    branch_of,
    driver_packages,
    ensure_archive,
    newer_release,
)
from pyinfra_gpu_rehearsal.server import CLOSED
from pyinfra_gpu_rehearsal.state import write_atomically

DEFAULT = ("580.82.07", "580.95.05")
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
    "expired-key": None,  # the key and its signature have expired
    "replaced-key": None,  # the repository is signed with another key
    "removes-desktop": _removes,  # the driver conflicts with a package of the user's
    "pulls-kernel": _pulls,  # the driver depends on a newer kernel
    "down": None,  # the server answers 503
}


def carries(distribution: str, version: str) -> bool:
    """Tell whether a distribution's repository may have a driver of that branch at all."""
    known = catalogue().repositories.releases.values()
    (carried,) = (each for each in known if each.distro == distribution)
    return carried.carries(int(branch_of(version)))


def offered(distribution: str) -> tuple[str, ...]:
    """Return the drivers that a distribution's repository offers at first.

    A repository begins with the branch of its day: that for Debian 13 has no 580.
    """
    fit = [version for version in DEFAULT if carries(distribution, version)]
    return tuple(fit or [version for version in DRIVERS if carries(distribution, version)])


def newest(versions: Iterable[str]) -> str:
    """Return the newest of the driver VERSIONS."""
    return max(versions, key=lambda version: [int(part) for part in version.split(".")])


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What one lab's repositories were made for, and what they offer now.

    + distribution: "debian12"; archive: the folder of the packages; server: its address
    + versions: the drivers on offer; bad: a key of KINDS, or ""
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
        (package,) = self.place.glob("cuda-keyring_*.deb")
        return hashlib.sha256(package.read_bytes()).hexdigest()

    @property
    def place(self) -> Path:
        """The folder that is served."""
        return self.www / "nvidia" / self._state.distribution / ARCHITECTURE

    @property
    def archive(self) -> Archive:
        """All packages there could be."""
        return Archive(folder=Path(self._state.archive))

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

    def ensure(self, image: BaseImage, say: Say) -> None:
        """Make the repositories where they are not there, or were made for something else."""
        distribution = f"debian{os_release(image.root / 'usr/lib/os-release')['VERSION_ID']}"
        archive = str(ensure_archive(say).folder)
        state = State(distribution=distribution, archive=archive, server=self.server)
        state = replace(state, versions=offered(distribution))
        if self._file.exists():
            old = self._state
            kept = {"versions": old.versions, "bad": old.bad, "newer_kernel": old.newer_kernel}
            if old == replace(state, **kept):  # type: ignore[arg-type]
                return
        self._key.ensure("pyinfra-gpu rehearsal: NVIDIA's key")
        self._offer(state)

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

    def publish_newer(self) -> str:
        """Offer the next newer driver as well, as NVIDIA does every few weeks; return its version.

        Raises LabError where there is none.
        """
        versions = self._state.versions
        more = [each for each in DRIVERS if newest((each, *versions)) not in versions]
        if not more:
            raise LabError(f"no simulated driver is newer than {newest(versions)}")
        self.publish(*versions, more[0])
        return more[0]

    def go_bad(self, kind: str) -> None:
        """Let the repository go wrong in the way KIND (see KINDS) until `restore`.

        Raises LabError where there is no such way.
        """
        if kind not in KINDS:
            known = ", ".join(KINDS)
            raise LabError(f"a repository cannot go bad in the way {kind!r}: there are {known}")
        self._offer(replace(self._state, bad=kind))

    def restore(self) -> None:
        """Let the repository be sound again; the versions on offer stay."""
        self._offer(replace(self._state, bad=""))

    def offer_newer_kernel(self, on: bool = True) -> None:
        """Let linux-image-amd64 and linux-headers-amd64 lead to the newer kernel, or not."""
        self._offer(replace(self._state, newer_kernel=on))

    # -- writing

    def _keyring(self, key: SigningKey) -> Package:
        distribution = self._state.distribution
        url = self.url.format(distro=distribution, arch=ARCHITECTURE)
        source = f"etc/apt/sources.list.d/cuda-{distribution}-{ARCHITECTURE}.list"
        pin = "Package: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 600\n"
        return Package(
            name="cuda-keyring",
            version="1.1-1",
            architecture="all",
            files={
                KEYRING: key.public,
                source: f"deb [signed-by=/{KEYRING}] {url} /\n",
                "etc/apt/preferences.d/cuda-repository-pin-600": pin,
            },
        )

    def _write(self, state: State) -> None:
        archive, kind, version = self.archive, state.bad, newest(state.versions)
        special = self.folder / "special"
        remove_tree(special)
        special.mkdir(parents=True)
        key, signer = self._key, self._key
        if kind == "expired-key":
            key = key.expired_copy(special / "key")
        elif kind == "replaced-key":
            name = "pyinfra-gpu rehearsal: another key"
            key = signer = SigningKey(special / "key").ensure(name)
        versions = {*state.versions, *((NEXT_BRANCH,) if kind == "transitional" else ())}
        packages = {p.name: p for part in (*versions, "cuda") for p in archive.of(part)}
        made = [self._keyring(key)]
        newer = newer_release(platform.release())
        if change := KINDS.get(kind):
            heads = [each for each in driver_packages(version) if each.name in HEADS]
            made += [change(head, f"linux-image-{newer}") for head in heads]
        packages |= {path.name: path for path in (each.build(special) for each in made)}
        expired = kind == "expired-key"
        write_flat(self.place, packages.values(), "NVIDIA", "NVIDIA CUDA", signer, expired=expired)
        leading = f"-amd64_{newer.split('-')[0]}-1_amd64.deb"
        hidden = () if state.newer_kernel else (f"linux-image{leading}", f"linux-headers{leading}")
        kernels = [path for path in archive.of("kernels") if path.name not in hidden]
        folder = self.www / "kernels"
        if {path.readlink() for path in folder.glob("*.deb")} != {*kernels}:
            write_flat(folder, kernels, NAME, NAME)
        if kind in ("vanished", "hash-mismatch"):
            path = self.place / f"libcuda1_{version}-1_amd64.deb"
            content = path.read_bytes()
            path.unlink()
            if kind == "hash-mismatch":
                path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        if kind == "down":
            (self.place / CLOSED).touch()
