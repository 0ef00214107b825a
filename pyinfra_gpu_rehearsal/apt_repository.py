"""A small real apt repository: folders, indexes, and a signature made with a throwaway key."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import shutil
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import run

KEY_NAME = "archive-key.asc"  # at the top of the repository; absent where it is not signed
NAME = "pyinfra-gpu rehearsal"
FORMAT = "not compressed"  # of what packages hold; other words make other repositories

_ARCHIVE, _HEADER = b"!<arch>\n", 60  # ar(5): what it begins with, and the bytes before a member
_NAME, _SIZE = slice(0, 16), slice(48, 58)


def stanza(control: str, filename: str, content: bytes) -> str:
    """Return the entry of the Packages index for one package.

    + control: the text of the package's control file.
    + filename: where the package lies, relative to the repository.
    """
    digest = hashlib.sha256(content).hexdigest()
    return f"{control.strip()}\nFilename: {filename}\nSize: {len(content)}\nSHA256: {digest}\n"


def release(suite: str, architecture: str, files: Iterable[tuple[str, bytes]]) -> str:
    """Return the text of the Release file of one suite with its one component, main."""
    now = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S UTC")
    head = [
        f"Origin: {NAME}",
        f"Label: {NAME}",
        f"Suite: {suite}",
        f"Codename: {suite}",
        f"Date: {now}",
        f"Architectures: {architecture}",
        "Components: main",
        "SHA256:",
    ]
    sums = [f" {hashlib.sha256(text).hexdigest()} {len(text)} {name}" for name, text in files]
    return "\n".join([*head, *sums]) + "\n"


def _sign(suite_folder: Path, key_file: Path) -> None:
    """Sign the suite with a key that is thrown away at once."""
    # A socket of gpg's agent lies in its home: the path must be short (108 bytes, unix(7)).
    with tempfile.TemporaryDirectory(prefix="pgpu-gpg-", dir="/tmp") as name:
        gpg = ["gpg", "--homedir", name, "--batch", "--yes", "--quiet", "--passphrase", ""]
        try:
            run([*gpg, "--quick-gen-key", NAME, "ed25519", "sign", "never"], purpose="making a key")
            run(
                [*gpg, "--clearsign", "-o", suite_folder / "InRelease", suite_folder / "Release"],
                purpose="signing the package repository",
            )
            key = run([*gpg, "--armor", "--export"], purpose="exporting a key").stdout
        finally:
            run(["gpgconf", "--homedir", name, "--kill", "all"], purpose="ending gpg", check=False)
    key_file.write_text(key)


def uncompressed(package: bytes) -> bytes:
    """Return the content of a .deb with its archives unpacked, where they are compressed by xz.

    To unpack them takes most of what dpkg takes of a processor, and throwaway hosts install the
    same packages again and again.
    """
    parts, at = [_ARCHIVE], len(_ARCHIVE)
    while at < len(package):
        header = bytearray(package[at : at + _HEADER])
        size = int(header[_SIZE])
        content = package[at + _HEADER : at + _HEADER + size]
        at += _HEADER + size + size % 2
        name = header[_NAME].decode().rstrip(" /")
        if name.endswith(".xz"):
            content = lzma.decompress(content)
            header[_NAME] = name.removesuffix(".xz").ljust(16).encode()
            header[_SIZE] = str(len(content)).ljust(10).encode()
        parts += [bytes(header), content, b"\n" * (len(content) % 2)]
    return b"".join(parts)


def make_repository(packages: Iterable[Path], folder: Path, *, suite: str) -> int:
    """Lay out PACKAGES (.deb files, which are removed) as an apt repository in FOLDER.

    The repository is signed where gpg is there; its key is then FOLDER/archive-key.asc.
    Returns the number of packages.
    """
    architecture = run(["dpkg", "--print-architecture"], purpose="asking dpkg").stdout.strip()
    pool = folder / "pool"
    pool.mkdir(parents=True)
    entries: list[str] = []
    for package in sorted(packages):
        # Some web servers and proxies decode %3a in a name differently from apt: leave it out.
        target = pool / package.name.replace("%3a", "-")
        content = uncompressed(package.read_bytes())
        target.write_bytes(content)
        package.unlink()
        control = run(["dpkg-deb", "--field", target], purpose=f"reading {target.name}").stdout
        entries.append(stanza(control, f"pool/{target.name}", content))
    index = "\n".join(entries).encode()
    suite_folder = folder / "dists" / suite
    binary = f"main/binary-{architecture}"
    (suite_folder / binary).mkdir(parents=True)
    files = [
        (f"{binary}/Packages", index),
        (f"{binary}/Packages.gz", gzip.compress(index, mtime=0)),
    ]
    for name, content in files:
        (suite_folder / name).write_bytes(content)
    (suite_folder / "Release").write_text(release(suite, architecture, files))
    if shutil.which("gpg"):
        _sign(suite_folder, folder / KEY_NAME)
    return len(entries)


def source_line(url: str, suite: str, *, signed_by: str | None) -> str:
    """Return the line for a host's sources.list that uses the repository at URL."""
    option = f"signed-by={signed_by}" if signed_by else "trusted=yes"
    return f"deb [{option}] {url} {suite} main\n"
