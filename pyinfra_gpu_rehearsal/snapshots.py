"""Snapshots of a host: all it ever wrote, kept as one more layer below what it writes next.

A host's files are an overlay: the base image and its own identity below, what it writes on top.
Taking a snapshot moves the top into the folder of the snapshot and begins an empty one; restoring
throws the top away. Both take as long as a boot does, however much the host has written.

What a host holds in memory is not kept: its services start as after a boot. Its boot id is, so
that what was proven in the boot in which the snapshot was taken still holds.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from pyinfra_gpu_rehearsal.errors import LabError

if TYPE_CHECKING:
    from pathlib import Path

    from pyinfra_gpu_rehearsal.host import LabHost

# In a host's folder; the first two are read by on_host/boot.sh, the second for one boot only.
LOWER, BOOT_ID, HARDWARE = "lower", "boot_id", "hardware"
NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


def names(host: LabHost) -> list[str]:
    """Return the names of the host's snapshots."""
    return sorted(path.parent.name for path in (host.folder / "snapshots").glob(f"*/{LOWER}"))


def check_new(host: LabHost, name: str) -> None:
    """Raise LabError where the host cannot have a snapshot NAME: it does not fit, or is taken."""
    if NAME.fullmatch(name) is None:
        raise LabError(f"a snapshot cannot be called {name!r}: use small letters, digits and -")
    if name in names(host):
        raise LabError(f"{host.name} has a snapshot {name!r} already")


def check_known(host: LabHost, name: str) -> None:
    """Raise LabError where the host has no snapshot NAME."""
    known = names(host)
    if name not in known:
        have = f"it has {', '.join(known)}" if known else "it has none"
        raise LabError(f"{host.name} has no snapshot {name!r}: {have}")


def take(host: LabHost, name: str, boot_id: str) -> None:
    """Keep the files of the host, which is off, as its snapshot NAME, which is new.

    + name: small letters, digits and hyphens
    + boot_id: of the boot in which it was
    """
    folder = host.folder / "snapshots" / name
    shutil.rmtree(folder, ignore_errors=True)  # of one that was begun and killed
    folder.mkdir(parents=True)
    (folder / BOOT_ID).write_text(f"{boot_id}\n")
    if (host.folder / HARDWARE).exists():
        shutil.copytree(host.folder / HARDWARE, folder / HARDWARE)
    host.upper.rename(folder / "up")
    (folder / LOWER).write_text(f"snapshots/{name}/up:{_read(host.folder / LOWER)}")
    host.wipe()
    _put_back(host, folder)


def restore(host: LabHost, name: str) -> None:
    """Give the host, which is off, the files that it had when its snapshot NAME was taken."""
    host.wipe()
    _put_back(host, host.folder / "snapshots" / name)


def leave(host: LabHost) -> None:
    """Let the host, which is off, stand on no snapshot; those that it has are kept."""
    for name in (LOWER, BOOT_ID):
        (host.folder / name).unlink(missing_ok=True)


def _put_back(host: LabHost, folder: Path) -> None:
    for name in (LOWER, BOOT_ID):
        shutil.copyfile(folder / name, host.folder / name)
    if (folder / HARDWARE).exists():
        shutil.rmtree(host.folder / HARDWARE, ignore_errors=True)
        shutil.copytree(folder / HARDWARE, host.folder / HARDWARE)


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
