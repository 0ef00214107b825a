"""Is the driver in the running kernel the installed one, and kept there? Judged, not touched."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyinfra_gpu.drift import layout
from pyinfra_gpu.drift.driver_inventory import of_ours, ours, packages
from pyinfra_gpu.drift.driver_packages import driver_names
from pyinfra_gpu.drift.finding import Finding, Id, repair, report
from pyinfra_gpu.drift.rules import if_known, known
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.packages.names import of_kernel
from pyinfra_gpu.text import shortened, some

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

_LONGEST_REASON = 300  # characters
_NAMED = 3  # so many paths are told
_SETTINGS = "/etc/modprobe.d /usr/lib/modprobe.d /etc/udev/rules.d"
_YEAR_5000 = 95_617_584_000  # in seconds since 1970; a host's clock may say anything

LOADED = (Id.DRIVER_MODULE_DIFFERS, Id.DRIVER_REBOOT_NOTED, Id.DRIVER_CLOSED)
"""What `driver_running.running` repairs."""

SERVICE = (Id.DRIVER_PERSISTENCED_DIFFERS,)
"""What `driver_running.persistent` repairs."""


def owed(found: Sequence[Finding]) -> str | None:
    """Return what a reload or a reboot is owed for, in words that are the same every night."""
    reasons = "; ".join(each.found for each in found if each.id is Id.DRIVER_MODULE_DIFFERS)
    return shortened(reasons, _LONGEST_REASON) or None


def uncured(at: int | Unknown) -> str:
    """Say that a reboot did not help, a clause with its remedy.

    + at: when it was asked for, in seconds since 1970
    """
    when = f"of {_moment(at)}" if isinstance(at, int) and at < _YEAR_5000 else "of before"
    return (
        f"the reboot {when} did not help, so none follows: see `dkms status` and `dmesg` there, and"
        " reboot when the cause is gone"
    )


def _moment(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


SERVICES = {
    "nvidia-persiste": "nvidia-persistenced",
    "nv-hostengine": "nvidia-dcgm",
    "nv-fabricmanage": "nvidia-fabricmanager",
    "nvidia-powerd": "nvidia-powerd",
    "nvidia-imex": "nvidia-imex",
}
"""Services of NVIDIA's that may be stopped and started again: process name (the kernel keeps 15
letters of it) -> unit.
"""


def users(record: Record) -> tuple[str, ...] | Unknown:
    """Return who uses the GPUs, beside NVIDIA's own services."""
    found = record.driver.users
    if isinstance(found, Unknown):
        return found
    return tuple(text for text in found if not _is_service(text))


def _is_service(text: str) -> bool:
    match = re.fullmatch(r"pid \d+ \((.*)\)", text)
    return bool(match) and match[1] in SERVICES  # type: ignore[index]


def _who(record: Record) -> str:
    """Say what an action has to wait for."""
    found = users(record)
    if isinstance(found, Unknown):
        return ", once it is known who uses the GPUs"
    return f", when they are done: {', '.join(found[:3])}" if found else ""


def _restart(id_: Id, found: str, expected: str, action: str, packages: tuple[str, ...]) -> Finding:
    return replace(repair(id_, found, expected, action, packages), effect="restart")


def _not_loaded(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what of the driver is in the kernel, whoever keeps it and whatever was tried."""
    driver, kernel, id_ = record.driver, of_kernel(record.system.kernel), Id.DRIVER_MODULE_DIFFERS
    loaded, on_disk = known(driver.loaded), known(driver.on_disk)
    free = [name for name in ("nouveau", "nova") if known(getattr(driver, name))]
    if free:
        found, expected = f"{' and '.join(free)} is bound to the GPUs", "NVIDIA's module"
        yield _restart(id_, found, expected, f"reboot{_who(record)}", kernel)
    elif loaded is None:
        named = (*packages(spec, record).wanted, *kernel)
        expected = f"module {on_disk or f'of branch {spec.driver.branch}'}"
        yield _restart(id_, "no NVIDIA module is loaded", expected, "load it", named)
    if loaded is None or on_disk is None:
        return
    flavours = (driver.open_modules, driver.on_disk_open)
    flavour = all(isinstance(each, bool) for each in flavours) and flavours[0] != flavours[1]
    if loaded != on_disk or flavour:
        yield _restart(
            id_,
            f"module {loaded}{' of the other flavour' if loaded == on_disk else ''} is loaded",
            f"{on_disk}, which is installed",
            f"load the installed module{_who(record)}",
            driver_names(packages(spec, record)),
        )


def _loaded(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge the loaded module; what one reboot did not cure is told, and never tried again.

    With ``driver_source = "present"`` somebody else keeps the driver: only what keeps a GPU from
    working is told, and the run stops at it. A reboot that helped, of a run that was cut off before
    it could say so, leaves a note: with it the same reason would have no reboot in half a year.
    """
    if spec.accelerator != "nvidia":
        return
    found, reboots = [*_not_loaded(spec, record)], if_known(record.power.reboots, ())
    reason = owed(found)
    if not ours(spec):
        told = "it is somebody else's (driver_source 'present'): load what is installed, or reboot"
        yield from (replace(each, effect="report", stops=True, action=told) for each in found)
        return
    same = (each for each in reboots if each.reason == reason)
    tried = next((each for each in same if each.boot_id != record.system.boot_id), None)
    if tried:
        told, command = uncured(tried.at), "sudo systemctl reboot"
        for each in found:
            yield replace(each, effect="report", action=told, stops=True, command=command)
        return
    yield from found
    if reason is None and record.driver.loaded:
        for reboot in reboots[-1:]:
            told = f"a reboot is noted that has helped ({reboot.reason})"
            expected = "no note, so that the same reason can have its reboot again"
            yield repair(Id.DRIVER_REBOOT_NOTED, told, expected, "delete the note")


@of_ours
def _persistenced(spec: HostSpec, record: Record) -> Iterator[Finding]:
    driver, wanted = record.driver, spec.driver.persistence
    state, enabled = known(driver.persistenced), known(driver.persistenced_enabled)
    if not packages(spec, record).installed:
        return
    expected, unit = f"driver_persistence = {wanted}", "nvidia-persistenced"
    id_, named = Id.DRIVER_PERSISTENCED_DIFFERS, (unit, "nvidia-compute-utils*")
    if wanted and state == "masked":
        action = "left alone: it was masked by hand. Unmask it, or declare"
        command = f"sudo systemctl unmask {unit}"
        found, action = f"{unit} is masked", f"{action} driver_persistence = False"
        yield report(id_, found, expected, action, command)
    elif wanted and (state != "active" or enabled is False):
        text = "not there" if state is None else state if state != "active" else "not enabled"
        # An upgrade stops it, and with the old module still loaded it could not start again.
        waits = enabled is True and any(_not_loaded(spec, record))
        judged = _restart if waits else repair
        yield judged(id_, f"{unit} is {text}", expected, "enable and start it", named)
    elif not wanted and (state == "active" or enabled is True):
        found = f"{unit} is {'active' if state == 'active' else 'enabled'}"
        yield repair(id_, found, expected, "stop and disable it", named)


def _closed(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what keeps the owner from the driver, by the owner's own tries to open it.

    With its devices closed no program of the owner's can begin to use a GPU, so the run stops. The
    driver makes them with the mode that its module was loaded with, and nvidia-modprobe gives them
    that mode again: to change it on the device does not last. Files that no package explains lie
    behind a folder on the way, or have a mode that root chose for good.
    """
    shut = if_known(record.driver.closed, ()) if spec.accelerator == "nvidia" else ()
    owner = layout.owner_name(spec, record) if shut else ""
    devices = [path for path in shut if path.startswith("/dev/")]
    files = [path for path in shut if path not in devices and not _told_else(spec, record, path)]
    if devices:
        yield report(
            Id.DRIVER_CLOSED,
            f"{owner} may not open {some(devices, _NAMED)}",
            "devices that the owner may read and write",
            "take NVreg_DeviceFileMode, -UID and -GID out of modprobe's settings, or the rule of"
            " udev's away, and reboot; or put the owner into the group that may; see who says so",
            f"ls -l {devices[0]}; grep -rsn -e NVreg_DeviceFile -e nvidia {_SETTINGS}",
            stops=True,
        )
    if files:
        yield report(
            Id.DRIVER_CLOSED,
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


RULES = (_loaded, _persistenced, _closed)
