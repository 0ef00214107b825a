"""Small real apt repositories: packages, indexes, Release files, and throwaway keys.

Only NVIDIA's is signed, which is what a deploy checks. The others are trusted by the hosts' own
lists ("trusted=yes"): they come from this machine.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import remove_tree, run

NAME = "pyinfra-gpu rehearsal"
# The time in every package, so that one made again is the same, byte for byte.
SAME_TIME = "1767225600"
# A key is made on this day, so that it can have expired since.
BIRTH, NEXT_DAY = "20260101T000000", "20260102T000000"
A_WEEK = "seconds=604800"


def pack(tree: Path, target: Path, *, compress: bool = False) -> Path:
    """Make the package TARGET of the folder TREE, and beside it (.stanza) its entry in an index.

    To unpack what xz has compressed takes most of what dpkg takes of a processor, and hosts install
    the same packages again and again.
    """
    how = ["-Zzstd", "-z1"] if compress else ["-Znone"]
    run(
        ["dpkg-deb", "--root-owner-group", *how, "--build", tree, target],
        purpose=f"making the package {target.name}",
        env={**os.environ, "SOURCE_DATE_EPOCH": SAME_TIME},
        timeout=600,
    )
    control, content = (tree / "DEBIAN/control").read_text(), target.read_bytes()
    entry = f"{control.strip()}\nFilename: {target.name}\nSize: {len(content)}\n"
    entry += f"SHA256: {hashlib.sha256(content).hexdigest()}\n"
    target.with_suffix(".stanza").write_text(entry)
    return target


def repack(original: Path, folder: Path) -> Path:
    """Make in FOLDER the package ORIGINAL, not compressed; its name has no epoch, as in a pool."""
    with tempfile.TemporaryDirectory(prefix="pgpu-deb-", dir=folder) as name:
        tree = Path(name, "tree")
        run(["dpkg-deb", "--raw-extract", original, tree], purpose=f"unpacking {original.name}")
        package, version, architecture = original.stem.split("_")
        version = version.rpartition("%3a")[2]
        return pack(tree, folder / f"{package}_{version}_{architecture}.deb")


def write_repository(
    folder: Path, packages: Iterable[Path], origin: str, label: str, key: Path | None = None,
    *, expired: bool = False,
) -> None:  # fmt: skip
    """Offer PACKAGES and nothing else in FOLDER, whose line in a host's list ends in "./".

    + packages: each has its entry of the index beside it
    + key: the folder of what signs
    + expired: whether it signed in the past, for a week
    """
    offered = list(packages)
    fresh, old = (folder.with_name(f".{folder.name}.{part}") for part in ("new", "old"))
    remove_tree(fresh)
    fresh.mkdir(parents=True)
    index = "\n".join(p.with_suffix(".stanza").read_text() for p in offered).encode()
    rows = [f"Origin: {origin}", f"Label: {label}", "Architectures: amd64 arm64"]
    rows += [f"Date: {datetime.now(UTC):%a, %d %b %Y %H:%M:%S UTC}", "SHA256:"]
    for name, content in (("Packages", index), ("Packages.gz", gzip.compress(index, mtime=0))):
        (fresh / name).write_bytes(content)
        rows.append(f" {hashlib.sha256(content).hexdigest()} {len(content)} {name}")
    (fresh / "Release").write_text("\n".join(rows) + "\n")
    if key:
        _sign(fresh / "Release", key, expired=expired)
    # A client asks for what is newer by whole seconds.
    before = folder / "Release"
    stamp = max(time.time(), before.stat().st_mtime + 1 if before.exists() else 0)
    for path in fresh.iterdir():
        os.utime(path, (stamp, stamp))
    for package in offered:
        (fresh / package.name).symlink_to(os.path.relpath(package, fresh))
    remove_tree(old)
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)  # between the two, for an instant, there is no repository
    remove_tree(old)


@contextmanager
def _gpg(*keys: Path) -> Iterator[list[str | Path]]:
    """Give the words that call gpg with a home of its own, which is gone afterwards.

    + keys: what it knows
    """
    # A socket of gpg's agent lies in its home: the path must be short (108 bytes, unix(7)).
    with tempfile.TemporaryDirectory(prefix="pgpu-gpg-", dir="/tmp") as name:
        words: list[str | Path] = ["gpg", "--homedir", name, "--batch", "--yes", "--quiet"]
        words += ["--passphrase", ""]
        try:
            for key in keys:
                run([*words, "--import", key], purpose="loading a key")
            yield words
        finally:
            run(["gpgconf", "--homedir", name, "--kill", "all"], purpose="ending gpg", check=False)


def ensure_key(folder: Path, name: str) -> None:
    """Make a key, called NAME, whose files lie in FOLDER, where there is none.

    There are `public.gpg`, as apt wants it, and `fingerprint`, 40 hexadecimal digits.
    """
    if (folder / "fingerprint").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    with _gpg() as gpg:
        born = [*gpg, "--faked-system-time", f"{BIRTH}!", "--quick-gen-key"]
        run([*born, name, "ed25519", "sign", "never"], purpose="making a key")
        for how, file in (("export-secret-keys", "secret.gpg"), ("export", "public.gpg")):
            run([*gpg, "--output", folder / file, f"--{how}"], purpose="exporting a key")
        listed = run([*gpg, "--with-colons", "--list-keys"], purpose="listing a key")
    (fingerprint,) = (r for r in listed.stdout.splitlines() if r.startswith("fpr:"))
    (folder / "fingerprint").write_text(fingerprint.split(":")[9])


def _sign(release: Path, key: Path, *, expired: bool) -> None:
    """Sign the file RELEASE of a repository, by the key in the folder KEY, as InRelease."""
    past = ["--faked-system-time", f"{NEXT_DAY}!", "--default-sig-expire", A_WEEK]
    words: list[str | Path] = ["--output", release.with_name("InRelease"), "--clearsign"]
    with _gpg(key / "secret.gpg") as gpg:
        command = [*gpg, *(past if expired else []), *words, release]
        run(command, purpose="signing a package repository")
