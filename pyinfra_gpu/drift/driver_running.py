"""Is the driver in the running kernel the installed one, and kept there? Judged, not touched."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from pyinfra_gpu.drift import driver_closed as closed
from pyinfra_gpu.drift.driver_archive import ours
from pyinfra_gpu.drift.driver_inventory import Packages, packages
from pyinfra_gpu.drift.driver_packages import driver_names
from pyinfra_gpu.drift.finding import Finding, Id, Stage
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.packages.names import of_kernel
from pyinfra_gpu.text import shortened

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = Stage.DRIVER
_LONGEST_REASON = 300  # characters
_YEAR_5000 = 95_617_584_000  # in seconds since 1970; a host's clock may say anything

CANNOT_WORK = (Id.DRIVER_NOUVEAU_LOADED, Id.DRIVER_NOT_LOADED, Id.DRIVER_MODULE_DIFFERS)
"""With one of these no program can begin to use a GPU."""

LOADED = (
    *CANNOT_WORK,
    Id.DRIVER_REBOOT_NOTED,
    Id.DRIVER_RUNFILE,
    Id.DRIVER_DEVICES_CLOSED,
    Id.DRIVER_FILES_CLOSED,
)
"""What `driver_running.running` repairs."""

SERVICE = (
    Id.DRIVER_PERSISTENCED_OFF,
    Id.DRIVER_PERSISTENCED_ON,
    Id.DRIVER_PERSISTENCED_MASKED,
)
"""What `driver_running.persistent` repairs."""


def needed(spec: HostSpec, record: Record) -> tuple[object, ...]:
    """Return the facts that this part of the stage cannot do without."""
    if spec.accelerator != "nvidia":
        return ()
    driver = record.driver
    service = (driver.persistenced, driver.persistenced_enabled) if ours(spec) else ()
    return (driver.loaded, driver.on_disk, driver.nouveau, driver.nova, *service)


def summary(spec: HostSpec, record: Record) -> str:
    """Name the driver that is loaded, where nothing differs."""
    return f"driver {record.driver.loaded} loaded" if spec.accelerator == "nvidia" else ""


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return what is not as declared of the loaded module, the service, and .run files.

    With ``driver_source = "present"`` somebody else keeps the driver: only what keeps a GPU from
    working is told, and the run stops at it.
    """
    if spec.accelerator != "nvidia":
        return []
    loaded = [*_free_drivers(record), *_loaded(spec, record)]
    if not ours(spec):
        action = (
            "it is somebody else's (driver_source 'present'): load what is installed, or reboot"
        )
        loaded = [replace(each, effect="report", stops=True, action=action) for each in loaded]
        return [*loaded, *closed.judge(spec, record)]
    loaded = [*_without_another_reboot(loaded, record), *_noted(loaded, record)]
    service = _persistenced(spec, record, packages(spec, record))
    return [*loaded, *service, *_runfile(record), *closed.judge(spec, record)]


def owed(found: Sequence[Finding]) -> str | None:
    """Return what a reload or a reboot is owed for, in words that are the same every night."""
    reasons = "; ".join(each.found for each in found if each.id in CANNOT_WORK)
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


def _without_another_reboot(found: list[Finding], record: Record) -> list[Finding]:
    """Report what one reboot did not cure; a second one would not either, tonight or tomorrow."""
    reboots, reason = record.power.reboots, owed(found)
    if isinstance(reboots, Unknown):
        return found
    for each in reboots:
        if each.reason == reason and each.boot_id != record.system.boot_id:
            tried = partial(replace, effect="report", action=uncured(each.at), stops=True)
            return [tried(one, command="sudo systemctl reboot") for one in found]
    return found


def _noted(found: Sequence[Finding], record: Record) -> list[Finding]:
    """Find a reboot that helped, of a run that was cut off before it could say so.

    Left there, the same reason would have no reboot in half a year.
    """
    reboots = record.power.reboots
    if owed(found) or isinstance(reboots, Unknown) or not isinstance(record.driver.loaded, str):
        return []
    return [
        Finding(
            id=Id.DRIVER_REBOOT_NOTED,
            found=f"a reboot is noted that has helped ({each.reason})",
            expected="no note, so that the same reason can have its reboot again",
            effect="repair",
            action="forget it",
        )
        for each in reboots[-1:]
    ]


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


def _free_drivers(record: Record) -> list[Finding]:
    names = [
        name
        for name, loaded in (("nouveau", record.driver.nouveau), ("nova", record.driver.nova))
        if loaded is True
    ]
    if not names:
        return []
    return [
        Finding(
            id=Id.DRIVER_NOUVEAU_LOADED,
            found=f"{' and '.join(names)} has the GPUs",
            expected="NVIDIA's module to have them",
            effect="restart",
            action="reboot" + _who(record),
            packages=of_kernel(record.system.kernel),
        )
    ]


def _loaded(spec: HostSpec, record: Record) -> list[Finding]:
    driver = record.driver
    if isinstance(driver.loaded, Unknown) or isinstance(driver.on_disk, Unknown):
        return []
    if driver.loaded is None:
        if driver.nouveau is True or driver.nova is True:
            return []  # told as that
        return [
            Finding(
                id=Id.DRIVER_NOT_LOADED,
                found="no NVIDIA module is loaded",
                expected=f"module {driver.on_disk or f'of branch {spec.driver.branch}'}",
                effect="restart",
                action="load it",
                packages=(*packages(spec, record).wanted, *of_kernel(record.system.kernel)),
            )
        ]
    installed, flavour = module_owed(record)
    if installed is None:
        return []
    return [
        Finding(
            id=Id.DRIVER_MODULE_DIFFERS,
            found=f"module {driver.loaded}{' of the other flavour' if flavour else ''} is loaded",
            expected=f"{installed}, which is installed",
            effect="restart",
            action="load the installed module" + _who(record),
            packages=driver_names(packages(spec, record)),
        )
    ]


def module_owed(record: Record) -> tuple[str | None, bool]:
    """Return (installed version that ought to be loaded, whether only the flavour differs)."""
    driver = record.driver
    if not isinstance(driver.loaded, str) or not isinstance(driver.on_disk, str):
        return None, False
    flavours = (driver.open_modules, driver.on_disk_open)
    flavour = all(isinstance(each, bool) for each in flavours) and flavours[0] != flavours[1]
    if driver.loaded != driver.on_disk or flavour:
        return driver.on_disk, flavour and driver.loaded == driver.on_disk
    return None, False


def _who(record: Record) -> str:
    """Say what an action has to wait for."""
    found = users(record)
    if isinstance(found, Unknown):
        return ", once it is known who uses the GPUs"
    return f", when they are done: {', '.join(found[:3])}" if found else ""


def _persistenced(spec: HostSpec, record: Record, found: Packages) -> list[Finding]:
    state, enabled = record.driver.persistenced, record.driver.persistenced_enabled
    if not found.installed or isinstance(state, Unknown) or isinstance(enabled, Unknown):
        return []
    if spec.driver.persistence and state == "masked":
        return [_masked()]
    if spec.driver.persistence and (state != "active" or enabled is False):
        id_, action = Id.DRIVER_PERSISTENCED_OFF, "enable and start it"
        text = "not there" if state is None else state if state != "active" else "not enabled"
    elif not spec.driver.persistence and (state == "active" or enabled is True):
        id_, action = Id.DRIVER_PERSISTENCED_ON, "stop and disable it"
        text = "active" if state == "active" else "enabled"
    else:
        return []
    # An upgrade stops it, and with the old module still loaded it could not start again.
    waits = id_ is Id.DRIVER_PERSISTENCED_OFF and enabled is True and bool(_loaded(spec, record))
    return [
        Finding(
            id=id_,
            found=f"nvidia-persistenced is {text}",
            expected=f"driver_persistence = {spec.driver.persistence}",
            effect="restart" if waits else "repair",
            action=action,
            packages=("nvidia-persistenced", "nvidia-compute-utils*"),
        )
    ]


def _masked() -> Finding:
    return Finding(
        id=Id.DRIVER_PERSISTENCED_MASKED,
        found="nvidia-persistenced is masked",
        expected="driver_persistence = True",
        effect="report",
        action="left alone, since somebody forbade it to start: unmask it, or declare"
        " driver_persistence = False",
        command="sudo systemctl unmask nvidia-persistenced",
    )


def _runfile(record: Record) -> list[Finding]:
    if record.driver.runfile is not True:
        return []
    return [
        Finding(
            id=Id.DRIVER_RUNFILE,
            found="a driver was installed by NVIDIA's .run file",
            expected="packages alone",
            effect="report",
            action="two drivers overwrite each other's files; remove that one yourself",
            command="sudo nvidia-uninstall",
        )
    ]
