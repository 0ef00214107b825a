"""In what the driver is not as declared, on disk and in the running kernel. Judged, not touched."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

from pyinfra_gpu.drift import files, layout
from pyinfra_gpu.drift.driver_inventory import (
    Packages,
    Repository,
    archive,
    from_nvidia,
    kernels,
    of_gpus,
    ours,
    packages,
    repository,
    target,
    trusts_nvidia,
)
from pyinfra_gpu.drift.files import File, lost_files, packages_of, told
from pyinfra_gpu.drift.finding import CannotTell, Effect, Finding, Id, Stage, repair, report
from pyinfra_gpu.drift.rules import Rules, if_known, known, where
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.packages import files as apt_files
from pyinfra_gpu.packages.names import LIBRARIES, driver_version, of_kernel
from pyinfra_gpu.spec import HostSpec, system_files
from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu.text import shortened, some

STAGE = Stage.DRIVER
UNIT = "nvidia-persistenced"
KEYRING_MODE = "0644"
BLACKLIST = """\
blacklist nouveau
options nouveau modeset=0
# The new free driver has names of its own since Linux 6.15.
blacklist nova_core
blacklist nova_drm
"""
SERVICES = {
    "nvidia-persiste": UNIT,
    "nv-hostengine": "nvidia-dcgm",
    "nv-fabricmanage": "nvidia-fabricmanager",
    "nvidia-powerd": "nvidia-powerd",
    "nvidia-imex": "nvidia-imex",
}
"""Services of NVIDIA's that may be stopped and started again: process name (the kernel keeps 15
letters of it) -> unit.
"""
_LIBRARY = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.(\d{3}\.\d{2,3}(?:\.\d{2})?)$")
_LONGEST_REASON = 300  # characters
_NAMED = 3  # so many are named
_SETTINGS = "/etc/modprobe.d /usr/lib/modprobe.d /etc/udev/rules.d"
_YEAR_5000 = 95_617_584_000  # in seconds since 1970; a host's clock may say anything


def summary(spec: HostSpec, record: Record) -> str:
    """Name the driver and where it is from, where nothing differs."""
    if not of_gpus(spec):
        return ""
    loaded = f"driver {record.driver.loaded} loaded"
    if not ours(spec):
        return loaded
    origin = "NVIDIA's repository" if from_nvidia(spec) else "the distribution's archive"
    text = f"{loaded}, from {origin}, with a module for every kernel"
    newest = record.kernel.newest
    waits = newest not in (None, record.system.kernel)
    return f"{text}; kernel {newest} comes with the next boot" if waits else text


# -- where packages come from


def trusted(spec: HostSpec, record: Record) -> Repository | None:
    """Return NVIDIA's repository where it is needed; raises CannotTell where there is none."""
    if not trusts_nvidia(spec):
        return None
    source = repository(spec, record)
    if isinstance(source, str):
        raise CannotTell(source)
    return source


def declared(spec: HostSpec, record: Record) -> Iterator[File]:
    """Yield our files: pins come before the list of the packages that they are to judge."""
    driver, own, toolkit, pin = spec.driver, archive(spec, record), None, Id.DRIVER_PINS_DIFFER
    if spec.cuda.toolkit and spec.cuda.release and spec.cuda.version:
        toolkit = (catalogue().toolkit_package(spec.cuda.release), spec.cuda.version)
    apart = own.apart if own else None
    wanted = driver.version or f"branch {driver.branch}"
    origin = "NVIDIA's repository" if from_nvidia(spec) else "the distribution's archive"
    rows = [
        (
            *(pin, apt_files.PREFERENCES),
            apt_files.preferences(driver.branch or 0, driver.version, toolkit, apart=apart),
            f"pins that hold the driver to {wanted} from {origin}",
        ),
        (
            *(pin, apt_files.UNATTENDED, apt_files.unattended(with_kernels=own is not None)),
            "unattended-upgrades kept off NVIDIA's packages",
        ),
        (
            *(Id.DRIVER_BLACKLIST_DIFFERS, system_files.MODPROBE),
            *(system_files.HEADER + BLACKLIST, "nouveau and nova kept off the GPUs"),
        ),
    ]
    if source := trusted(spec, record):
        listed, expected = apt_files.sources(source.url), f"packages from {source.url}"
        rows.append((Id.DRIVER_SOURCE_DIFFERS, apt_files.SOURCES, listed, expected))
    for id_, path, text, expected in rows:
        yield File(id=id_, path=path, content=text.encode(), expected=expected)


def twice(record: Record, source: Repository) -> list[str]:
    """Return the other lists with the declared repository; none works where their keys differ."""
    listed = known(record.nvidia.sources)
    same = [each.file for each in listed if each.uri.rstrip("/") == source.url]
    return [file for file in dict.fromkeys(same) if file != apt_files.SOURCES]


def _keyring(spec: HostSpec, record: Record) -> Iterator[Finding]:
    if (source := trusted(spec, record)) is None:
        return
    keys, path, found = record.nvidia.keyring, system_files.KEYRING, ""
    mode = known(record.layout.entry(path)).mode
    if isinstance(keys, Unknown):
        found = f"{path} holds something else ({keys.reason})"
    elif keys != (source.key_fingerprint,):
        found = f"{path} holds {', '.join(keys or ()) or 'no key'}"
    elif mode != KEYRING_MODE:
        found = f"{path} cannot be read by everybody"
    if found:
        expected, action = f"the key {source.key_fingerprint}", "fetch it and check its key"
        yield repair(Id.DRIVER_KEYRING_REPLACED, found, expected, action)


def _files(spec: HostSpec, record: Record) -> Iterator[Finding]:
    yield from files.judge(record, declared(spec, record))
    source = trusted(spec, record)
    for file in twice(record, source) if source else ():
        found = f"{file} names the declared repository a second time"
        expected, action = f"only {apt_files.SOURCES} to name it", f"rename it to {file}.disabled"
        yield repair(Id.DRIVER_SOURCE_DIFFERS, found, expected, action)


# -- packages


def _known(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Ask for what has to be known before anything is installed."""
    kernel = record.kernel
    installed = (record.nvidia.packages, record.packages.half_configured)
    for each in (*installed, kernel.headers, kernel.installed, record.system.kernel):
        known(each)
    if not packages(spec, record).wanted:
        raise CannotTell(none_known(spec, record))
    yield from ()


def none_known(spec: HostSpec, record: Record) -> str:
    """Say that nobody knows what the declared driver's packages are called here."""
    of = "for" if from_nvidia(spec) else "in the archive of"
    driver = f"driver branch {spec.driver.branch} with {spec.driver.modules} modules"
    return f"no packages of {driver} are known {of} {record.system.os_name}"


def _packages(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Compare what is installed with the declared flavour, and all of it with one version."""
    known(record.nvidia.packages)
    found, driver, flavour = packages(spec, record), spec.driver, f"{spec.driver.modules} modules"
    version = target(spec, found)
    newest = f"of branch {driver.branch}, {driver.minimum} or newer"
    expected = f"driver {version or newest}"
    if found.foreign or found.missing:
        there = f"{', '.join(found.foreign)} installed" if found.foreign else "no driver installed"
        if found.versions and not found.foreign:
            there = f"{', '.join(found.missing)} not installed"
        action = f"install {', '.join(found.missing or found.wanted)}"
        named = (*found.foreign, *(found.missing or found.wanted))
        id_, wanted = Id.DRIVER_NOT_INSTALLED, f"{expected} with {flavour}"
        yield repair(id_, there, wanted, action, named)
    versions = {each.name: driver_version(each.version) for each in found.following}
    if odd := {name: each for name, each in versions.items() if each not in (None, version)}:
        names, one = (*odd, *found.telling), len(found.versions) == 1
        each_ = some([f"{name} {other}" for name, other in odd.items()], _NAMED)
        there = f"driver {found.versions[0]}" if one else each_
        yield repair(Id.DRIVER_VERSION_DIFFERS, there, expected, f"install {expected}", names)


def _headers(spec: HostSpec, record: Record) -> Iterator[Finding]:
    headers = if_known(record.kernel.headers, {})
    for kernel in () if archive(spec, record) else kernels(record):
        if headers.get(kernel) is False:
            found, expected = f"no headers for kernel {kernel}", "headers, to build a module with"
            name = catalogue().headers_package(kernel)
            yield repair(Id.DRIVER_HEADERS_MISSING, found, expected, f"install {name}", (name,))


def _damaged(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what packages of one version cannot explain; its packages are installed again."""
    known(record.nvidia.packages)
    found, id_ = packages(spec, record), Id.DRIVER_FILES_DAMAGED
    if half := tuple(each.name for each in found.installed if not each.complete):
        there, action = f"{', '.join(half)} only partly installed", "finish their installation"
        yield repair(id_, there, "whole packages", action, half)
    if wrong := foreign_libraries(record, found):
        expected = f"the libraries of driver {found.versions[0]}"
        action = "keep what no package brought under another name, and install the libraries'"
        action += " packages again"
        yield repair(id_, " and ".join(wrong), expected, action, LIBRARIES)
    if lost := lost_files(record, found.names.__contains__):
        names = tuple(packages_of(lost))
        expected = "every file of the driver's packages as they brought it"
        yield repair(id_, told(lost), expected, f"install {', '.join(names)} again", names)


def foreign_libraries(record: Record, found: Packages) -> list[str]:
    """Return the libraries that programs load, and that are not of the driver's one version."""
    paths = (record.driver.libcuda, record.driver.libml) if len(found.versions) == 1 else ()
    named = [match for path in paths if (match := _LIBRARY.search(str(path)))]
    return [match.string for match in named if match[1] != found.versions[0]]


# -- what the next boot finds


def unbuilt(spec: HostSpec, record: Record) -> dict[str, str]:
    """Return the kernels for which the module is to be built, and what there is of it.

    Also where DKMS has forgotten it, and would build none for a kernel to come.
    """
    modules, versions = known(record.kernel.modules), packages(spec, record).versions
    if len(versions) != 1:
        return {}
    there = {each: modules.get(each) for each in kernels(record)}
    wrong = {each: it for each, it in there.items() if it != versions[0]}
    sources = if_known(record.kernel.sources, versions)
    if not wrong and not archive(spec, record) and versions[0] not in sources:
        return dict.fromkeys(kernels(record)[:1], "DKMS has no source of the module")
    return {each: f"module {it}" if it else "no module" for each, it in wrong.items()}


def wrongly_held(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return the driver's packages that are not on hold, or are, against `driver_hold`."""
    following = packages(spec, record).following
    return tuple(each.name for each in following if each.held is not spec.driver.hold)


def _module_name(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """A rule of modprobe's in a file of somebody's is left alone: it may be there on purpose."""
    name, _, file = (known(record.driver.module) or "nvidia").partition(" ")
    if packages(spec, record).installed and name != "nvidia":
        yield report(
            Id.DRIVER_MODULE_NAME_DIFFERS,
            f"`modprobe nvidia` {'runs' if '/' in name else 'loads'} {name}, by {file}",
            "nvidia",
            "left alone, since the file is not ours: remove that rule; see whose it is",
            f"dpkg -S {file}",
            stops=True,
        )


def _holds(spec: HostSpec, record: Record) -> Iterator[Finding]:
    known(record.nvidia.packages)
    if names := wrongly_held(spec, record):
        hold = spec.driver.hold
        found = f"{some(names, _NAMED)} {'not on hold' if hold else 'on hold'}"
        action = "put them on hold" if hold else "take them off hold"
        yield repair(Id.DRIVER_HOLD_DIFFERS, found, f"driver_hold = {hold}", action)


def _modules(spec: HostSpec, record: Record) -> Iterator[Finding]:
    known(record.kernel.installed)
    found = packages(spec, record)
    for kernel, there in unbuilt(spec, record).items():
        running = kernel == record.system.kernel
        expected = f"module {found.versions[0]}{'' if running else ', or the next boot has no GPU'}"
        how = "install the distribution's" if archive(spec, record) else "build it"
        named = (*of_kernel(kernel), "dkms", *found.wanted)
        id_, said = Id.DRIVER_MODULE_NOT_BUILT, f"{there} for kernel {kernel}"
        yield repair(id_, said, expected, f"{how} for {kernel}", named)


def _initramfs(spec: HostSpec, record: Record) -> Iterator[Finding]:
    del spec
    if known(record.kernel.initramfs) == "stale":
        found = "the initramfs is older than the blacklist"
        expected = "an initramfs with the blacklist in it"
        yield repair(Id.DRIVER_INITRAMFS_STALE, found, expected, "update the initramfs")


# -- the running kernel


def owed(found: Iterable[Finding]) -> str | None:
    """Return what a reload or a reboot is owed for, in words that are the same every night."""
    reasons = "; ".join(each.found for each in found if each.id is Id.DRIVER_MODULE_DIFFERS)
    return shortened(reasons, _LONGEST_REASON) or None


def uncured(at: int | Unknown) -> str:
    """Say that a reboot did not help, a clause with its remedy.

    + at: when it was asked for, in seconds since 1970
    """
    when = "of before"
    if isinstance(at, int) and at < _YEAR_5000:
        when = f"of {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
    return (
        f"the reboot {when} did not help, so none follows: see `dkms status` and `dmesg` there, and"
        " reboot when the cause is gone"
    )


def users(record: Record) -> tuple[str, ...] | Unknown:
    """Return who uses the GPUs, beside NVIDIA's own services."""
    found = record.driver.users
    if isinstance(found, Unknown):
        return found
    return tuple(each for each in found if each.partition(" (")[2][:-1] not in SERVICES)


def _module(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what of the driver is in the kernel, whoever keeps it and whatever was tried."""
    driver, kernel, id_ = record.driver, of_kernel(record.system.kernel), Id.DRIVER_MODULE_DIFFERS
    loaded, on_disk, busy = known(driver.loaded), known(driver.on_disk), users(record)
    found = packages(spec, record)
    who = busy if isinstance(busy, Unknown) else some(busy, _NAMED)
    when = "" if busy == () else f", when nobody uses the GPUs (now {who})"
    flavours = {driver.open_modules, driver.on_disk_open}
    if free := [name for name in ("nouveau", "nova") if known(getattr(driver, name))]:
        there = f"{' and '.join(free)} is bound to the GPUs"
        yield repair(id_, there, "NVIDIA's module", f"reboot{when}", kernel, effect="restart")
    elif loaded is None:
        named = (*found.wanted, *kernel)
        there, expected = "no NVIDIA module is loaded", f"module {on_disk or 'of the driver'}"
        yield repair(id_, there, expected, "load it", named, effect="restart")
    if loaded and on_disk and (loaded != on_disk or flavours == {True, False}):
        there = f"module {loaded}{' of the other flavour' if loaded == on_disk else ''} is loaded"
        expected, action = f"{on_disk}, which is installed", f"load the installed module{when}"
        yield repair(id_, there, expected, action, found.telling, effect="restart")


def _loaded(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge the loaded module; what one reboot did not cure is told, and never tried again.

    With ``driver_source = "present"`` somebody else keeps the driver: only what keeps a GPU from
    working is told, and the run stops at it. A reboot that helped, of a run that was cut off before
    it could say so, leaves a note: with it the same reason would have no reboot in half a year.
    """
    found, reboots = [*_module(spec, record)], if_known(record.power.reboots, ())
    reason, action, command = owed(found), "", None
    tried = [
        each.at
        for each in reboots
        if each.reason == reason and each.boot_id != record.system.boot_id
    ]
    if not ours(spec):
        action = (
            "it is somebody else's (driver_source 'present'): load the installed one, or reboot"
        )
    elif tried:
        action, command = uncured(tried[0]), "sudo systemctl reboot"
    elif reason is None and record.driver.loaded and reboots:
        noted = f"a reboot is noted that has helped ({reboots[-1].reason})"
        expected = "no note, so that the same reason can have its reboot again"
        yield repair(Id.DRIVER_REBOOT_NOTED, noted, expected, "delete the note")
    for each in found:
        left = replace(each, effect="report", action=action, command=command, stops=True)
        yield left if action else each


def _persistenced(spec: HostSpec, record: Record) -> Iterator[Finding]:
    wanted, id_ = spec.driver.persistence, Id.DRIVER_PERSISTENCED_DIFFERS
    state, enabled = known(record.driver.persistenced), known(record.driver.persistenced_enabled)
    is_on = state == "active" and enabled is not False
    is_off = state != "active" and enabled is not True
    if not packages(spec, record).installed or (is_on if wanted else is_off):
        return
    expected, named = f"driver_persistence = {wanted}", (UNIT, "nvidia-compute-utils*")
    if wanted and state == "masked":
        action = "left alone: it was masked by hand. Unmask it, or declare"
        action += " driver_persistence = False"
        command = f"sudo systemctl unmask {UNIT}"
        yield report(id_, f"{UNIT} is masked", expected, action, command)
        return
    what = state or "not there"
    if wanted and state == "active":
        what = "not enabled"
    elif not wanted and state != "active":
        what = "enabled"
    # An upgrade stops it, and with the old module still loaded it could not start again.
    waits = wanted and enabled is True and any(_module(spec, record))
    effect: Effect = "restart" if waits else "repair"
    action = "enable and start it" if wanted else "stop and disable it"
    yield repair(id_, f"{UNIT} is {what}", expected, action, named, effect=effect)


def _closed(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what keeps the owner from the driver, by the owner's own tries to open it.

    With its devices closed no program of the owner's can begin to use a GPU, so the run stops. The
    driver makes them with the mode that its module was loaded with, and nvidia-modprobe gives them
    that mode again: to change it on the device does not last. Files that no package explains lie
    behind a folder on the way, or have a mode that root chose for good.
    """
    shut, owner = if_known(record.driver.closed, ()), layout.owner_name(spec, record)
    devices = [path for path in shut if path.startswith("/dev/")]
    others = [path for path in shut if path not in devices and not _told_else(spec, record, path)]
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
    if others:
        yield report(
            Id.DRIVER_CLOSED,
            f"{owner} may not use {some(others, _NAMED)}",
            "libraries that the owner may read, and programs that the owner may run",
            "left alone, since somebody chose that, for a folder on the way or for good by the"
            " package manager's list of modes: take it back",
            f"namei -l {others[0]}",
        )


def _told_else(spec: HostSpec, record: Record, path: str) -> bool:
    """Tell whether another finding says it: a link that dangles, or a file of our packages'."""
    link = if_known(record.libcuda.links, {}).get(path)
    real = link.real if link else path
    lost = if_known(record.nvidia.lost, ()) if ours(spec) else ()
    return real is None or real in {each.path for each in lost}


judge = Rules(
    *where(
        ours,
        *(_keyring, _files, _known, _packages, _headers, _damaged),
        *(_module_name, _holds, _modules, _initramfs),
    ),
    *where(of_gpus, _loaded),
    *where(ours, _persistenced),
    *where(of_gpus, _closed),
)
"""In the order in which it is repaired."""
