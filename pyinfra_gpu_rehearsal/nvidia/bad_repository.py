"""Ways in which a package repository goes wrong, each as users of NVIDIA's have met it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.nvidia.archive import Archive
from pyinfra_gpu_rehearsal.nvidia.debs import Package, build
from pyinfra_gpu_rehearsal.nvidia.driver_packages import OPEN, branch_of, driver_packages
from pyinfra_gpu_rehearsal.nvidia.kernels import DESKTOP

# What each does to a host that asks plain apt for the newest driver of the branch.
KINDS = {
    "transitional": "the newest driver's packages are stubs that lead to the next branch",
    "vanished": "the index names a package that is not there",
    "mixed-origin": "the distribution has packages of the same names: of a higher version, and of"
    " the newest in another revision",
    "newer-leaf": "some packages of a driver are newer than the others",
    "hash-mismatch": "a package is not what the index says",
    "expired-key": "the key and its signature have expired",
    "replaced-key": "the repository is signed with another key",
    "removes-desktop": "the driver conflicts with a package of the user's",
    "pulls-kernel": "the driver depends on a newer kernel",
    "down": "the server answers 503",
}
NEXT_BRANCH = "595.71.05"
OF_DISTRIBUTION = "580.178.04"  # of the same names in the distribution's archive
REVISION = "0+deb12u1"  # lower than NVIDIA's, as Ubuntu's are
HEADS = ("nvidia-driver-cuda", "nvidia-driver")
LEAVES = ("libcuda1", "nvidia-modprobe")


def newest(versions: Sequence[str]) -> str:
    """Return the newest of the driver VERSIONS."""
    return max(versions, key=lambda version: [int(part) for part in version.split(".")])


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """What the repositories offer: files of packages."""

    nvidia: tuple[Path, ...]
    distribution: tuple[Path, ...] = ()


def _replaced(offer: Sequence[Path], special: Sequence[Path]) -> tuple[Path, ...]:
    names = {path.name for path in special}
    return (*(path for path in offer if path.name not in names), *special)


def _and_on(package: Package, relation: str, what: str) -> Package:
    before = package.relations.get(relation, "")
    return package.changed(**{relation: f"{before}, {what}" if before else what})


def revised(package: Package, version: str, revision: str = REVISION) -> Package:
    """Return PACKAGE of VERSION as an archive has it that packs the same driver itself."""
    ours, theirs = f"{version}-1", f"{version}-{revision}"
    relations = {key: text.replace(ours, theirs) for key, text in package.relations.items()}
    return replace(package, version=theirs, relations=relations)


def _stub(package: Package) -> Package:
    """Return PACKAGE emptied: it only leads to the packages of the next branch."""
    names = ("libcuda1", "libnvidia-ml1", "nvidia-smi", OPEN)
    depends = ", ".join(f"{name} (= {NEXT_BRANCH}-1)" for name in names)
    return replace(package, relations={"Depends": depends}, files={}, scripts={})


def _later_leaves(archive: Archive, version: str) -> list[Path]:
    later = sorted(archive.folder.glob(f"{branch_of(version)}.*"))
    names = [path.name for path in later if newest([path.name, version]) != version]
    if not names:
        raise LabError(f"no simulated driver is newer than {version}: publish an older one first")
    found = archive.of(newest(names))
    return [path for path in found if path.name.split("_")[0] in LEAVES]


def spoiled(
    kind: str, offer: Offer, versions: Sequence[str], archive: Archive, special: Path
) -> Offer:
    """Return OFFER gone wrong in the way KIND, where it is the packages that are wrong.

    + versions: the drivers on offer; the newest is the one that is wrong
    + special: a folder for packages that are made for this
    """
    version = newest(versions)
    if kind == "newer-leaf":
        return replace(offer, nvidia=(*offer.nvidia, *_later_leaves(archive, version)))
    if kind == "mixed-origin":
        made = [build(p, special) for p in driver_packages(OF_DISTRIBUTION, special)]
        made += [build(revised(p, version), special) for p in driver_packages(version, special)]
        return replace(offer, distribution=(*offer.distribution, *made))
    heads = [p for p in driver_packages(version, special) if p.name in HEADS]
    if kind == "transitional":
        stubs = [build(_stub(package), special) for package in heads]
        following = archive.of(NEXT_BRANCH)
        return replace(offer, nvidia=_replaced((*offer.nvidia, *following), stubs))
    changes = {
        "removes-desktop": ("Conflicts", DESKTOP),
        "pulls-kernel": ("Depends", f"linux-image-{archive.kernels.newer}"),
    }
    if kind not in changes:
        return offer
    made = [build(_and_on(package, *changes[kind]), special) for package in heads]
    return replace(offer, nvidia=_replaced(offer.nvidia, made))


def spoil_file(kind: str, folder: Path, version: str) -> None:
    """Spoil, after the index was written, the file of libcuda1 of VERSION in FOLDER."""
    if kind not in ("vanished", "hash-mismatch"):
        return
    path = next(folder.glob(f"libcuda1_{version}-1_*.deb"))
    content = path.read_bytes()
    path.unlink()
    if kind == "hash-mismatch":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
