"""Is the driver the owner's to use: devices, libraries, nvidia-smi? Judged, never touched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyinfra_gpu.drift import layout
from pyinfra_gpu.drift.driver_archive import ours
from pyinfra_gpu.drift.finding import Finding, Id, report
from pyinfra_gpu.drift.rules import if_known
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.text import some

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

_NAMED = 3  # so many paths are told
_SETTINGS = "/etc/modprobe.d /usr/lib/modprobe.d /etc/udev/rules.d"


def closed(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what keeps the owner from the driver, by the owner's own tries to open it.

    With its devices closed no program of the owner's can begin to use a GPU, so the run stops. The
    driver makes them with the mode that its module was loaded with, and nvidia-modprobe gives them
    that mode again: to change it on the device does not last. Files that no package explains lie
    behind a folder on the way, or have a mode that root chose for good.
    """
    shut = if_known(record.driver.closed, ())
    owner = layout.owner_name(spec, record) if shut else ""
    devices = [path for path in shut if path.startswith("/dev/")]
    files = [path for path in shut if path not in devices and not _told_else(spec, record, path)]
    if devices:
        yield report(
            Id.DRIVER_DEVICES_CLOSED,
            f"{owner} may not open {some(devices, _NAMED)}",
            "devices that the owner may read and write",
            "take NVreg_DeviceFileMode, -UID and -GID out of modprobe's settings, or the rule of"
            " udev's away, and reboot; or put the owner into the group that may; see who says so",
            f"ls -l {devices[0]}; grep -rsn -e NVreg_DeviceFile -e nvidia {_SETTINGS}",
            stops=True,
        )
    if files:
        yield report(
            Id.DRIVER_FILES_CLOSED,
            f"{owner} may not use {some(files, _NAMED)}",
            "libraries that the owner may read, and programs that the owner may run",
            "left alone, since somebody chose that, for a folder on the way or for good by the"
            " package manager's list of modes: take it back",
            f"namei -l {files[0]}",
        )


def _told_else(spec: HostSpec, record: Record, path: str) -> bool:
    """Tell whether another finding says it: a link that dangles, or a file of our packages'."""
    lost, links = record.nvidia.lost, record.libcuda.links
    link = None if isinstance(links, Unknown) else links.get(path)
    real = link.real if link else path
    if isinstance(lost, Unknown) or not ours(spec):
        return real is None
    return real is None or real in {each.path for each in lost}
