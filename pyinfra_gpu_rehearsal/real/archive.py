"""The distribution's own archive, in the small: real packages of a driver, with all they need.

They are downloaded from where the machine's own apt takes its packages, and stay in the cache:
NVIDIA lets the archive hand them out, and nobody else. What a host then sees is laid out as the
archive is, with its suites, components and labels, and signed with a key of the lab's.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pyinfra_gpu_rehearsal.apt_repository import stanza
from pyinfra_gpu_rehearsal.aptconfig import AptConfiguration
from pyinfra_gpu_rehearsal.base_image import BaseImage, Say
from pyinfra_gpu_rehearsal.commands import run
from pyinfra_gpu_rehearsal.nvidia.signing import SigningKey
from pyinfra_gpu_rehearsal.state import cache_folder, locked

COMPONENTS = ("main", "contrib", "non-free", "non-free-firmware")
KEYRING = "usr/share/keyrings/debian-archive-rehearsal.gpg"  # named as the distribution's own is


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What is to be on offer in one suite.

    + suite: "bookworm", or "bookworm-security" with the label of that
    + packages: words of apt's, "libcuda1=535.261.03-1", installed with all they need
    + alone: the same, without what they need
    """

    suite: str
    packages: tuple[str, ...]
    alone: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What the suite calls itself in its index."""
        return "Debian-Security" if self.suite.endswith("-security") else "Debian"


def with_components(apt: AptConfiguration) -> AptConfiguration:
    """Return the machine's sources with every component of the archive."""
    sources = tuple(replace(source, components=COMPONENTS) for source in apt.sources)
    return replace(apt, sources=sources)


def _apt(root: Path, status: Path, *words: str) -> list[str | Path]:
    """Return the words of apt-get on a root of its own, with another machine's list of packages."""
    return [
        *("apt-get", "-c", root / "options", "-o", f"Dir={root}", "-q"),
        *("-o", f"Dir::State::status={status}", *words),
    ]


def _root(apt: AptConfiguration, folder: Path) -> Path:
    for name in ("etc/apt/apt.conf.d", "etc/apt/preferences.d", "var/lib/apt/lists/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "var/cache/apt/archives/partial").mkdir(parents=True, exist_ok=True)
    (folder / "etc/apt/sources.list").write_text(with_components(apt).sources_text())
    own = ('APT::Sandbox::User "root";', 'Acquire::Languages "none";')
    (folder / "options").write_text("\n".join([*apt.options, *own]) + "\n")
    return folder


def fetch(
    apt: AptConfiguration, image: BaseImage, wanted: Sequence[Wanted], say: Say
) -> dict[str, list[Path]]:
    """Return the packages of each suite, downloaded first where the cache does not have them.

    + image: what is installed on the hosts already. Raises LabError where a download fails.
    """
    key = hashlib.sha256(f"{image.digest} {wanted}".encode()).hexdigest()[:12]
    folder = cache_folder() / f"real-{image.codename}-{key}"
    with locked(cache_folder() / "real.lock"):
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            say("downloading real packages of the driver and of its kernel (once) ...")
            root = _root(apt, folder / "apt")
            status = image.root / "var/lib/dpkg/status"
            run(_apt(root, status, "update"), purpose="reading the archive", timeout=300)
            for each in wanted:
                _download(root, status, each, folder / each.suite)
            shutil.rmtree(folder / "apt")
            (folder / "done").touch()
    return {each.suite: sorted((folder / each.suite).glob("*.deb")) for each in wanted}


def _download(root: Path, status: Path, wanted: Wanted, folder: Path) -> None:
    folder.mkdir(parents=True)
    if wanted.packages:
        words = ("--yes", "--no-install-recommends", "--download-only", "install")
        purpose = "downloading packages with all they need"
        run(_apt(root, status, *words, *wanted.packages), purpose=purpose, timeout=900)
        for path in (root / "var/cache/apt/archives").glob("*.deb"):
            path.rename(folder / path.name.replace("%3a", "-"))
    if wanted.alone:
        purpose = "downloading packages"
        command = _apt(root, status, "download", *wanted.alone)
        run(command, purpose=purpose, cwd=folder, timeout=900)


def _component(section: str) -> str:
    return section.partition("/")[0] if "/" in section else "main"


def lay_out(
    packages: dict[str, list[Path]], wanted: Iterable[Wanted], folder: Path, key: SigningKey
) -> None:
    """Lay the packages of each suite out below FOLDER as the archive does."""
    shutil.rmtree(folder, ignore_errors=True)
    for each in wanted:
        entries: dict[str, list[str]] = {name: [] for name in COMPONENTS}
        for path in packages[each.suite]:
            link = folder / "pool" / each.suite / path.name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
            control = run(["dpkg-deb", "--field", path], purpose=f"reading {path.name}").stdout
            section = next(line for line in control.splitlines() if line.startswith("Section: "))
            component = _component(section.partition(": ")[2])
            name = f"pool/{each.suite}/{path.name}"
            entries[component].append(stanza(control, name, path.read_bytes()))
        _write(each, entries, folder / "dists" / each.suite, key)


def _write(each: Wanted, entries: dict[str, list[str]], folder: Path, key: SigningKey) -> None:
    sums = []
    for component, found in entries.items():
        text = "\n".join(found).encode()
        for name, content in (("Packages", text), ("Packages.gz", gzip.compress(text, mtime=0))):
            path = folder / component / "binary-amd64" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            digest = hashlib.sha256(content).hexdigest()
            sums.append(f" {digest} {len(content)} {path.relative_to(folder)}")
    now = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S UTC")
    head = (
        *("Origin: Debian", f"Label: {each.label}", f"Suite: {each.suite}"),
        *(f"Codename: {each.suite}", f"Date: {now}", "Architectures: amd64"),
        *(f"Components: {' '.join(entries)}", "SHA256:"),
    )
    (folder / "Release").write_text("\n".join([*head, *sums]) + "\n")
    key.sign(folder / "Release")
