"""Is the driver the owner's to use: devices, libraries, nvidia-smi? Judged, never touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.drift import layout
from pyinfra_gpu.drift.driver_archive import ours
from pyinfra_gpu.drift.finding import Finding, Id
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.text import some

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

_NAMED = 3  # so many paths are told
_SETTINGS = "/etc/modprobe.d /usr/lib/modprobe.d /etc/udev/rules.d"


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return what keeps the owner from the driver, by the owner's own tries to open it."""
    shut = record.driver.closed
    if isinstance(shut, Unknown):
        return []
    devices = [path for path in shut if path.startswith("/dev/")]
    files = [path for path in shut if path not in devices and not _told_else(spec, record, path)]
    found = [_devices(spec, record, devices)] if devices else []
    return [*found, _files(spec, record, files)] if files else found


def _devices(spec: HostSpec, record: Record, paths: list[str]) -> Finding:
    """No program of the owner's can begin to use a GPU, so the run stops here.

    The driver makes its devices with the mode that its module was loaded with, and nvidia-modprobe
    gives them that mode again: to change it on the device does not last.
    """
    owner = layout.owner_name(spec, record)
    return Finding(
        id=Id.DRIVER_DEVICES_CLOSED,
        found=f"{owner} may not open {some(paths, _NAMED)}",
        expected="devices that the owner may read and write",
        effect="report",
        action="take NVreg_DeviceFileMode, -UID and -GID out of modprobe's settings, or the rule of"
        " udev's away, and reboot; or put the owner into the group that may; see who says so",
        command=f"ls -l {paths[0]}; grep -rsn -e NVreg_DeviceFile -e nvidia {_SETTINGS}",
        stops=True,
    )


def _files(spec: HostSpec, record: Record, paths: list[str]) -> Finding:
    """What no package's file explains: a folder on the way, or a mode that root chose for good."""
    owner = layout.owner_name(spec, record)
    return Finding(
        id=Id.DRIVER_FILES_CLOSED,
        found=f"{owner} may not use {some(paths, _NAMED)}",
        expected="libraries that the owner may read, and programs that the owner may run",
        effect="report",
        action="left alone, since somebody chose that, for a folder on the way or for good by the"
        " package manager's list of modes: take it back",
        command=f"namei -l {paths[0]}",
    )


def _told_else(spec: HostSpec, record: Record, path: str) -> bool:
    """Tell whether another finding says it: a link that dangles, or a file of our packages'."""
    lost, links = record.nvidia.lost, record.libcuda.links
    link = None if isinstance(links, Unknown) else links.get(path)
    real = link.real if link else path
    if isinstance(lost, Unknown) or not ours(spec):
        return real is None
    return real is None or real in {each.path for each in lost}
