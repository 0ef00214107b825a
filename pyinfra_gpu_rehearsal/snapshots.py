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

from pyinfra_gpu_rehearsal.commands import remove_tree
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.host import LabHost

# In a host's folder, where on_host/boot.sh reads them, the second for one boot only.
LOWER, BOOT_ID = "lower", "boot_id"


def names(host: LabHost) -> list[str]:
    """Return the names of the host's snapshots."""
    return sorted(path.parent.name for path in (host.folder / "snapshots").glob(f"*/{LOWER}"))


def take(host: LabHost, name: str) -> None:
    """Cut the power of the host, which is on, and keep its files as its snapshot NAME.

    Raises LabError where it is off, or cannot have a snapshot NAME: it does not fit, or is taken.
    """
    if re.fullmatch(r"[a-z0-9][a-z0-9-]*", name) is None:
        raise LabError(f"a snapshot cannot be called {name!r}: use small letters, digits and -")
    if name in names(host):
        raise LabError(f"{host.name} has a snapshot {name!r} already")
    boot_id = host.boot_id()
    host.power_off()
    folder, before = host.folder / "snapshots" / name, host.folder / LOWER
    remove_tree(folder)  # of one that was begun and killed
    folder.mkdir(parents=True)
    (folder / BOOT_ID).write_text(f"{boot_id}\n")
    host.upper.rename(folder / "up")
    layers = before.read_text() if before.exists() else ""
    (folder / LOWER).write_text(f"snapshots/{name}/up:{layers}")
    restore(host, name)


def restore(host: LabHost, name: str) -> None:
    """Cut the host's power and give it the files that it had when its snapshot NAME was taken.

    Raises LabError where it has no such snapshot.
    """
    known, folder = names(host), host.folder / "snapshots" / name
    if name not in known:
        have = f"it has {', '.join(known)}" if known else "it has none"
        raise LabError(f"{host.name} has no snapshot {name!r}: {have}")
    host.power_off()
    host.wipe()
    for part in (LOWER, BOOT_ID):
        shutil.copyfile(folder / part, host.folder / part)


def leave(host: LabHost) -> None:
    """Let the host, which is off, stand on no snapshot; those that it has are kept."""
    for name in (LOWER, BOOT_ID):
        (host.folder / name).unlink(missing_ok=True)
