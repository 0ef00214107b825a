"""One archive per host, and the way from one to a fixture of the tests."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

from pyinfra_gpu.report.collect.gathering import PROBE, Collected
from pyinfra_gpu.whole_file import replacing

_MOST = 4 << 20  # bytes of an archive's file that are read


class ArchiveError(ValueError):
    """The file is none of our archives; the message says why."""


def write(folder: Path, number: int, host: Collected, written: str) -> Path:
    """Write a host's archive, readable by its owner alone; return where it is.

    + number: of the host in this collection; its name is not in the archive's
    + written: when, as a date
    """
    inside = f"host-{number}"
    path = folder / f"{inside}.tar.gz"
    about = [f"gathered: {written}", *([f"missing: {host.reason}"] if host.reason else [])]
    about += [f"replaced: {count} x {kind}" for kind, count in host.masks.items()]
    files = {"about.txt": "\n".join(about) + "\n", **host.files}
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name in sorted(files):
            data = files[name].encode("utf-8", "surrogateescape")
            entry = tarfile.TarInfo(f"{inside}/{name}")
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
    with replacing(path, 0o600) as file:
        file.write(gzip.compress(content.getvalue(), mtime=0))
    return path


def fixture(path: Path) -> str:
    """Return the record in an archive in the form of the tests' fixtures.

    Raises ArchiveError.
    """
    try:
        with tarfile.open(path) as archive:
            names = {member.name.partition("/")[2]: member for member in archive.getmembers()}
            about = _read(archive, names["about.txt"]).splitlines()[0]
            probe = _read(archive, names[PROBE])
    except (OSError, tarfile.TarError, KeyError, EOFError) as error:
        raise ArchiveError(f"{path} is no archive of `pyinfra-gpu collect` ({error})") from error
    gathered = about.removeprefix("gathered: ")
    return (
        f"# recorded: by `pyinfra-gpu collect` on {gathered}; names and numbers replaced\n{probe}"
    )


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = archive.extractfile(member)
    if file is None or member.size > _MOST:
        raise KeyError(member.name)
    return file.read().decode("utf-8", "surrogateescape")
