"""Is the driver in the running kernel the installed one, and kept there? Judged, not touched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from pyinfra_gpu.drift import layout
from pyinfra_gpu.drift.driver_inventory import of_gpus, ours, packages
from pyinfra_gpu.drift.finding import Effect, Finding, Id, repair, report
from pyinfra_gpu.drift.rules import if_known, known, where
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.packages.names import of_kernel
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.text import shortened, some

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
    names = {text: text.partition(" (")[2].removesuffix(")") for text in found}
    return tuple(text for text, name in names.items() if name not in SERVICES)


def _who(record: Record) -> str:
    """Say what an action has to wait for."""
    found = users(record)
    if isinstance(found, Unknown):
        return ", once it is known who uses the GPUs"
    return f", when they are done: {', '.join(found[:3])}" if found else ""


def _not_loaded(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what of the driver is in the kernel, whoever keeps it and whatever was tried."""
    driver, kernel, id_ = record.driver, of_kernel(record.system.kernel), Id.DRIVER_MODULE_DIFFERS
    loaded, on_disk = known(driver.loaded), known(driver.on_disk)
    found = packages(spec, record)
    free = [name for name in ("nouveau", "nova") if known(getattr(driver, name))]
    if free:
        there, action = f"{' and '.join(free)} is bound to the GPUs", f"reboot{_who(record)}"
        yield repair(id_, there, "NVIDIA's module", action, kernel, effect="restart")
    elif loaded is None:
        there, named = "no NVIDIA module is loaded", (*found.wanted, *kernel)
        expected = f"module {on_disk or f'of branch {spec.driver.branch}'}"
        yield repair(id_, there, expected, "load it", named, effect="restart")
    if loaded is None or on_disk is None:
        return
    flavours = (driver.open_modules, driver.on_disk_open)
    flavour = all(isinstance(each, bool) for each in flavours) and flavours[0] != flavours[1]
    if loaded != on_disk or flavour:
        there = f"module {loaded}{' of the other flavour' if loaded == on_disk else ''} is loaded"
        expected, action = f"{on_disk}, which is installed", "load the installed module"
        action += _who(record)
        yield repair(id_, there, expected, action, found.telling, effect="restart")


def _loaded(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge the loaded module; what one reboot did not cure is told, and never tried again.

    With ``driver_source = "present"`` somebody else keeps the driver: only what keeps a GPU from
    working is told, and the run stops at it. A reboot that helped, of a run that was cut off before
    it could say so, leaves a note: with it the same reason would have no reboot in half a year.
    """
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


def _persistenced(spec: HostSpec, record: Record) -> Iterator[Finding]:
    driver, wanted = record.driver, spec.driver.persistence
    state, enabled = known(driver.persistenced), known(driver.persistenced_enabled)
    if not packages(spec, record).installed:
        return
    expected, unit = f"driver_persistence = {wanted}", "nvidia-persistenced"
    id_, named = Id.DRIVER_PERSISTENCED_DIFFERS, (unit, "nvidia-compute-utils*")
    if wanted and state == "masked":
        action = "left alone: it was masked by hand. Unmask it, or declare"
        action += " driver_persistence = False"
        command = f"sudo systemctl unmask {unit}"
        yield report(id_, f"{unit} is masked", expected, action, command)
    elif wanted and (state != "active" or enabled is False):
        text = "not there" if state is None else state if state != "active" else "not enabled"
        # An upgrade stops it, and with the old module still loaded it could not start again.
        waits = enabled is True and any(_not_loaded(spec, record))
        found, action = f"{unit} is {text}", "enable and start it"
        effect: Effect = "restart" if waits else "repair"
        yield repair(id_, found, expected, action, named, effect=effect)
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
    if not (shut := if_known(record.driver.closed, ())):
        return
    owner = layout.owner_name(spec, record)
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
    link = if_known(record.libcuda.links, {}).get(path)
    real = link.real if link else path
    lost = if_known(record.nvidia.lost, ()) if ours(spec) else ()
    return real is None or real in {each.path for each in lost}


RULES = (*where(of_gpus, _loaded), *where(ours, _persistenced), *where(of_gpus, _closed))
