"""Throwaway keys for package repositories, kept so that an index can be signed again."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import run
from pyinfra_gpu_rehearsal.errors import LabError

# A key is made on this day, so that it can have expired since.
BIRTH, NEXT_DAY = "20260101T000000", "20260102T000000"
A_WEEK = "seconds=604800"


@contextmanager
def _home() -> Iterator[list[str | Path]]:
    """Give the words that call gpg with a home of its own, which is gone afterwards."""
    if shutil.which("gpg") is None:
        raise LabError("signing a package repository needs gpg: apt-get install gnupg")
    # A socket of gpg's agent lies in its home: the path must be short (108 bytes, unix(7)).
    with tempfile.TemporaryDirectory(prefix="pgpu-gpg-", dir="/tmp") as name:
        try:
            yield ["gpg", "--homedir", name, "--batch", "--yes", "--quiet", "--passphrase", ""]
        finally:
            run(["gpgconf", "--homedir", name, "--kill", "all"], purpose="ending gpg", check=False)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key whose files lie in FOLDER."""

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
        with _home() as gpg:
            born = [*gpg, "--faked-system-time", f"{BIRTH}!"]
            run(
                [*born, "--quick-gen-key", name, "ed25519", "sign", "never"], purpose="making a key"
            )
            listed = run([*gpg, "--with-colons", "--list-keys"], purpose="listing a key").stdout
            fingerprint = next(line for line in listed.splitlines() if line.startswith("fpr:"))
            self._export(gpg)
            (self.folder / "fingerprint").write_text(fingerprint.split(":")[9] + "\n")

    def _export(self, gpg: list[str | Path]) -> None:
        secret: list[str | Path] = ["--output", self.folder / "secret.gpg", "--export-secret-keys"]
        run([*gpg, *secret], purpose="keeping a key")
        run([*gpg, "--output", self.public, "--export"], purpose="exporting a key")

    def _load(self, gpg: list[str | Path]) -> None:
        run([*gpg, "--import", self.folder / "secret.gpg"], purpose="loading a key")

    def sign(self, release: Path, *, expired: bool = False) -> None:
        """Sign the file RELEASE of a repository as InRelease beside it.

        + expired: with a signature that was good for a week of the past.
        """
        past = ["--faked-system-time", f"{NEXT_DAY}!", "--default-sig-expire", A_WEEK]
        words: list[str | Path] = ["--output", release.with_name("InRelease"), "--clearsign"]
        with _home() as gpg:
            self._load(gpg)
            command = [*gpg, *(past if expired else []), *words, release]
            run(command, purpose="signing a package repository")

    def expired_copy(self, folder: Path) -> SigningKey:
        """Return the same key, kept in FOLDER, as its owner would let it expire."""
        folder.mkdir(parents=True, exist_ok=True)
        with _home() as gpg:
            self._load(gpg)
            back = [*gpg, "--faked-system-time", f"{NEXT_DAY}!"]
            run([*back, "--quick-set-expire", self.fingerprint, A_WEEK], purpose="expiring a key")
            copy = SigningKey(folder)
            copy._export(gpg)
        (folder / "fingerprint").write_text(f"{self.fingerprint}\n")
        return copy
