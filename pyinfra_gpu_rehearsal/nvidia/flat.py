"""A flat, signed package repository: an index and its packages in one folder, as NVIDIA's is."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyinfra_gpu_rehearsal.nvidia.debs import index
from pyinfra_gpu_rehearsal.nvidia.signing import SigningKey


@dataclass(frozen=True, kw_only=True, slots=True)
class FlatRepository:
    """A repository in FOLDER; a host's line for it ends in "./" or "/"."""

    folder: Path
    origin: str
    label: str

    def offers(self, packages: Iterable[Path]) -> bool:
        """Tell whether it offers PACKAGES and nothing else."""
        path = self.folder / "Packages"
        return path.exists() and path.read_text() == index(packages)

    def write(self, packages: Iterable[Path], key: SigningKey, *, expired: bool = False) -> None:
        """Offer PACKAGES and nothing else, signed with KEY.

        + expired: sign as in the past.
        """
        offered = list(packages)
        fresh = self.folder.with_name(f".{self.folder.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for package in offered:
            (fresh / package.name).symlink_to(package)
        text = index(offered).encode()
        for name, content in (
            ("Packages", text),
            ("Packages.gz", gzip.compress(text, mtime=0)),
        ):
            (fresh / name).write_bytes(content)
        (fresh / "Release").write_text(self._release(fresh))
        key.sign(fresh / "Release", expired=expired)
        self._date(fresh)
        old = self.folder.with_name(f".{self.folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if self.folder.exists():
            self.folder.rename(old)
        fresh.rename(self.folder)  # between the two, for an instant, there is no repository
        shutil.rmtree(old, ignore_errors=True)

    def _date(self, fresh: Path) -> None:
        """Give the new files a later time than the old: a client asks by whole seconds."""
        old = self.folder / "InRelease"
        stamp = max(time.time(), old.stat().st_mtime + 1 if old.exists() else 0)
        for path in fresh.iterdir():
            if not path.is_symlink():
                os.utime(path, (stamp, stamp))

    def _release(self, folder: Path) -> str:
        now = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S UTC")
        head = [
            f"Origin: {self.origin}",
            f"Label: {self.label}",
            "Architectures: amd64",
            f"Date: {now}",
            "Description: rehearsal",
            "SHA256:",
        ]
        sums = []
        for name in ("Packages", "Packages.gz"):
            content = (folder / name).read_bytes()
            sums.append(f" {hashlib.sha256(content).hexdigest()} {len(content)} {name}")
        return "\n".join([*head, *sums]) + "\n"
