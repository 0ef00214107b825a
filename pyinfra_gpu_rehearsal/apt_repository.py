"""Small real apt repositories: indexes, Release files, and signatures of throwaway keys."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import run

NAME = "pyinfra-gpu rehearsal"

# A key is made on this day, so that it can have expired since.
BIRTH, NEXT_DAY = "20260101T000000", "20260102T000000"
A_WEEK = "seconds=604800"


@contextmanager
def _gpg() -> Iterator[list[str | Path]]:
    """Give the words that call gpg with a home of its own, which is gone afterwards."""
    # A socket of gpg's agent lies in its home: the path must be short (108 bytes, unix(7)).
    with tempfile.TemporaryDirectory(prefix="pgpu-gpg-", dir="/tmp") as name:
        try:
            yield ["gpg", "--homedir", name, "--batch", "--yes", "--quiet", "--passphrase", ""]
        finally:
            run(["gpgconf", "--homedir", name, "--kill", "all"], purpose="ending gpg", check=False)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key whose files lie in FOLDER, so that a repository can be signed again."""

    folder: Path

    @property
    def public(self) -> Path:
        """The key as apt wants it: binary."""
        return self.folder / "public.gpg"

    @property
    def fingerprint(self) -> str:
        """Its 40 hexadecimal digits."""
        return (self.folder / "fingerprint").read_text().strip()

    def ensure(self, name: str) -> None:
        """Make the key, called NAME, where there is none."""
        if (self.folder / "fingerprint").exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        with _gpg() as gpg:
            born = [*gpg, "--faked-system-time", f"{BIRTH}!", "--quick-gen-key"]
            run([*born, name, "ed25519", "sign", "never"], purpose="making a key")
            listed = run([*gpg, "--with-colons", "--list-keys"], purpose="listing a key").stdout
            fingerprint = next(line for line in listed.splitlines() if line.startswith("fpr:"))
            self._export(gpg)
        (self.folder / "fingerprint").write_text(fingerprint.split(":")[9] + "\n")

    def _export(self, gpg: list[str | Path]) -> None:
        for how, path in (("-secret-keys", self.folder / "secret.gpg"), ("", self.public)):
            run([*gpg, "--output", path, f"--export{how}"], purpose="exporting a key")

    def _load(self, gpg: list[str | Path]) -> None:
        run([*gpg, "--import", self.folder / "secret.gpg"], purpose="loading a key")

    def sign(self, release: Path, *, expired: bool = False) -> None:
        """Sign the file RELEASE of a repository as InRelease beside it.

        + expired: with a signature that was good for a week of the past.
        """
        past = ["--faked-system-time", f"{NEXT_DAY}!", "--default-sig-expire", A_WEEK]
        words: list[str | Path] = ["--output", release.with_name("InRelease"), "--clearsign"]
        with _gpg() as gpg:
            self._load(gpg)
            command = [*gpg, *(past if expired else []), *words, release]
            run(command, purpose="signing a package repository")

    def expired_copy(self, folder: Path) -> SigningKey:
        """Return the same key, kept in FOLDER, as its owner would let it expire."""
        folder.mkdir(parents=True, exist_ok=True)
        copy = SigningKey(folder)
        with _gpg() as gpg:
            self._load(gpg)
            back = [*gpg, "--faked-system-time", f"{NEXT_DAY}!"]
            run([*back, "--quick-set-expire", self.fingerprint, A_WEEK], purpose="expiring a key")
            copy._export(gpg)
        shutil.copyfile(self.folder / "fingerprint", folder / "fingerprint")
        return copy


def stanza(control: str, filename: str, content: bytes) -> str:
    """Return the entry of the Packages index for one package.

    + control: the text of the package's control file.
    + filename: where the package lies, relative to the repository.
    """
    digest = hashlib.sha256(content).hexdigest()
    return f"{control.strip()}\nFilename: {filename}\nSize: {len(content)}\nSHA256: {digest}\n"


def write_suite(
    folder: Path, place: str, entries: Iterable[str], fields: Mapping[str, str]
) -> None:
    """Write an index of packages and a Release file that vouches for it into FOLDER.

    + place: where the index lies in FOLDER, "" = at its top
    + entries: what `stanza` returns for each package
    + fields: of the Release file, beside its date and its sums
    """
    index = "\n".join(entries).encode()
    (folder / place).mkdir(parents=True, exist_ok=True)
    rows = [f"{key}: {value}" for key, value in fields.items()]
    rows += [f"Date: {datetime.now(UTC):%a, %d %b %Y %H:%M:%S UTC}", "SHA256:"]
    for name, content in (("Packages", index), ("Packages.gz", gzip.compress(index, mtime=0))):
        (folder / place / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        rows.append(f" {digest} {len(content)} {Path(place, name)}")
    (folder / "Release").write_text("\n".join(rows) + "\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class FlatRepository:
    """A repository whose index and packages lie in FOLDER, as NVIDIA's; its line ends in "/"."""

    folder: Path
    origin: str
    label: str

    @staticmethod
    def _entries(packages: Iterable[Path]) -> list[str]:
        return [package.with_suffix(".stanza").read_text() for package in packages]

    def offers(self, packages: Iterable[Path]) -> bool:
        """Tell whether it offers PACKAGES and nothing else."""
        path = self.folder / "Packages"
        return path.exists() and path.read_text() == "\n".join(self._entries(packages))

    def write(self, packages: Iterable[Path], key: SigningKey, *, expired: bool = False) -> None:
        """Offer PACKAGES and nothing else, signed with KEY.

        + packages: each has its entry of the index beside it, as `debs.build` makes it
        + expired: sign as in the past.
        """
        offered = list(packages)
        fresh, old = (
            self.folder.with_name(f".{self.folder.name}.{part}") for part in ("new", "old")
        )
        for folder in (fresh, old):
            shutil.rmtree(folder, ignore_errors=True)
        fields = {"Origin": self.origin, "Label": self.label, "Architectures": "amd64"}
        write_suite(fresh, "", self._entries(offered), fields)
        key.sign(fresh / "Release", expired=expired)
        # A client asks for what is newer by whole seconds.
        signed = self.folder / "InRelease"
        stamp = max(time.time(), signed.stat().st_mtime + 1 if signed.exists() else 0)
        for path in fresh.iterdir():
            os.utime(path, (stamp, stamp))
        for package in offered:
            (fresh / package.name).symlink_to(package)
        if self.folder.exists():
            self.folder.rename(old)
        fresh.rename(self.folder)  # between the two, for an instant, there is no repository
        shutil.rmtree(old, ignore_errors=True)
