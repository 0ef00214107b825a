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
from pyinfra_gpu.drift.files import File, lost_files
from pyinfra_gpu.drift.finding import CannotTell, Effect, Finding, Id, Stage, repair, report, stop
from pyinfra_gpu.drift.rules import Rules, if_known, known, where
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.packages import files as apt_files
from pyinfra_gpu.packages.names import LIBRARIES, driver_version, matching, of_kernel
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
    """Name the loaded driver, and where it is from if it is ours; nothing differs."""
    origin = "NVIDIA's repository" if from_nvidia(spec) else "the distribution's archive"
    loaded = f"driver {record.driver.loaded} loaded{f', from {origin}' if ours(spec) else ''}"
    return loaded if of_gpus(spec) else ""


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
    driver, cuda, own, toolkit = spec.driver, spec.cuda, archive(spec, record), None
    if cuda.toolkit and cuda.release and cuda.version:
        toolkit = (catalogue().toolkit_package(cuda.release), cuda.version)
    apart = own.apart if own else None
    pins = apt_files.preferences(driver.branch or 0, driver.version, toolkit, apart=apart)
    unattended = apt_files.unattended(with_kernels=own is not None)
    id_, free = Id.DRIVER_PINS_DIFFER, system_files.HEADER + BLACKLIST
    yield File(id=id_, path=apt_files.PREFERENCES, content=pins.encode())
    yield File(id=id_, path=apt_files.UNATTENDED, content=unattended.encode())
    yield File(id=Id.DRIVER_BLACKLIST_DIFFERS, path=system_files.MODPROBE, content=free.encode())
    if source := trusted(spec, record):
        text, id_ = apt_files.sources(source.url), Id.DRIVER_SOURCE_DIFFERS
        yield File(id=id_, path=apt_files.SOURCES, content=text.encode())


def twice(record: Record, source: Repository) -> dict[str, bool]:
    """Return the other lists with the declared repository, and whether each names others as well.

    None of them works where their keys differ.
    """
    found: dict[str, set[str]] = {}
    for each in known(record.nvidia.sources):
        found.setdefault(each.file, set()).add(each.uri.rstrip("/"))
    others = {file: uris for file, uris in found.items() if file != apt_files.SOURCES}
    return {file: len(uris) > 1 for file, uris in others.items() if source.url in uris}


def _keyring(spec: HostSpec, record: Record) -> Iterator[Finding]:
    if (source := trusted(spec, record)) is None:
        return
    keys, path, found = record.nvidia.keyring, system_files.KEYRING, ""
    mode = known(record.layout.entry(path)).mode
    if isinstance(keys, Unknown):
        found = f"{path} holds something else ({keys.reason})"
    elif keys != (source.key_fingerprint,):
        found = f"{path} holds {', '.join(keys)}" if keys else f"no key in {path}"
    elif mode != KEYRING_MODE:
        found = f"{path} cannot be read by everybody"
    if found:
        expected, action = f"the key {source.key_fingerprint}", "fetch it and check its key"
        yield repair(Id.DRIVER_KEYRING_REPLACED, found, expected, action)


def _files(spec: HostSpec, record: Record) -> Iterator[Finding]:
    yield from files.judge(record, declared(spec, record))
    source = trusted(spec, record)
    for file, shared in (twice(record, source) if source else {}).items():
        found = f"{file} names the declared repository a second time"
        expected, id_ = f"only {apt_files.SOURCES} to name it", Id.DRIVER_SOURCE_DIFFERS
        if shared:
            action = "take it out there, where other repositories are named too"
            yield stop(id_, found, expected, action, f"sudoedit {file}")
        else:
            yield repair(id_, found, expected, f"rename it to {file}.disabled")


# -- packages


def none_known(spec: HostSpec, record: Record) -> str:
    """Say that nobody knows what the declared driver's packages are called here."""
    of = "for" if from_nvidia(spec) else "in the archive of"
    driver = f"driver branch {spec.driver.branch} with {spec.driver.modules} modules"
    return f"no packages of {driver} are known {of} {record.system.os_name}"


def _packages(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge each package: of the flavour, of the one version, whole, and on hold as declared.

    What is wrong is told by package, and all that is wrong in the same way is one finding.
    """
    known(record.nvidia.packages)
    found, driver, names = packages(spec, record), spec.driver, packages(spec, record).names
    if not found.wanted:
        raise CannotTell(none_known(spec, record))
    version, hold = target(spec, found), driver.hold
    right = f"driver {version or f'of branch {driver.branch}, {driver.minimum} or newer'}"
    flavoured, whole = f"{right} with {driver.modules} modules", "whole packages, as they came"
    other = {name: f"{name} installed" for name in names if name in found.other}
    missing = {name: f"{name} not installed" for name in found.wanted if name not in names}
    odd, held, damaged = dict[str, str](), dict[str, str](), dict[str, str]()
    for each in found.following:
        there = driver_version(each.version)
        if there not in (None, version):
            odd[each.name] = f"{'driver' if len(found.versions) == 1 else each.name} {there}"
        if each.held is not hold:
            held[each.name] = f"{each.name} {'not on hold' if hold else 'on hold'}"
    if libraries := " and ".join(foreign_libraries(record, found)):
        damaged |= dict.fromkeys(matching(names, LIBRARIES), libraries)
    damaged |= {each.package: str(each) for each in lost_files(record, names.__contains__)}
    half = [each.name for each in found.installed if not each.complete]
    damaged |= {name: f"{name} only partly installed" for name in half}
    holding = "hold" if hold else "unhold"
    for id_, wrong, expected, action, named in (
        (Id.DRIVER_NOT_INSTALLED, other | missing, flavoured, "install the driver", found.wanted),
        (Id.DRIVER_VERSION_DIFFERS, odd, right, "install that version", found.telling),
        (Id.DRIVER_FILES_DAMAGED, damaged, whole, "reinstall the packages", ()),
        (Id.DRIVER_HOLD_DIFFERS, held, f"driver_hold = {hold}", f"apt-mark {holding}", ()),
    ):
        if wrong:
            said = some([*dict.fromkeys(wrong.values())], _NAMED)
            yield repair(id_, said, expected, action, (*wrong, *named))


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
    modules, versions = if_known(record.kernel.modules, None), packages(spec, record).versions
    if modules is None or len(versions) != 1:
        return {}
    there = {each: modules.get(each) for each in kernels(record)}
    wrong = {each: it for each, it in there.items() if it != versions[0]}
    sources = if_known(record.kernel.sources, versions)
    if not wrong and not archive(spec, record) and versions[0] not in sources:
        return dict.fromkeys(kernels(record)[:1], "DKMS has no source of the module")
    return {each: f"module {it}" if it else "no module" for each, it in wrong.items()}


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


def _kernels(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge, of the running and the next kernel, the headers to build with and the module."""
    kernel, own, found = record.kernel, archive(spec, record), packages(spec, record)
    headers, missing = known(kernel.headers), [] if own else kernels(record)
    for name in (each for each in missing if headers.get(each) is False):
        said, package = f"no headers for kernel {name}", catalogue().headers_package(name)
        expected = "headers, to build a module with"
        yield repair(Id.DRIVER_HEADERS_MISSING, said, expected, f"install {package}", (package,))
    asked = (kernel.installed, kernel.modules, record.packages.half_configured)
    for each in (*asked, record.system.kernel):
        known(each)
    for name, there in unbuilt(spec, record).items():
        boot = "" if name == record.system.kernel else ", or the next boot has no GPU"
        how = "install the distribution's" if own else "build it"
        named = (*of_kernel(name), "dkms", *found.wanted)
        said, expected = f"{there} for kernel {name}", f"module {found.versions[0]}{boot}"
        yield repair(Id.DRIVER_MODULE_NOT_BUILT, said, expected, f"{how} for {name}", named)


def _initramfs(spec: HostSpec, record: Record) -> Iterator[Finding]:
    del spec
    if known(record.kernel.initramfs) == "stale":
        found = "the initramfs is older than the blacklist"
        expected = "an initramfs with the blacklist in it"
        yield repair(Id.DRIVER_INITRAMFS_STALE, found, expected, "update the initramfs")


# -- the running kernel


def reboot_reason(found: Iterable[Finding]) -> str | None:
    """Return what a reload or a reboot is owed for, in words that are the same every night."""
    reasons = "; ".join(each.found for each in found if each.id is Id.DRIVER_MODULE_DIFFERS)
    return shortened(reasons, _LONGEST_REASON) or None


def uncured(at: int | Unknown) -> str:
    """Say that a reboot did not help that was asked for at a moment, in seconds since 1970."""
    when, remedy = "", "see `dkms status` and `dmesg` there, and reboot when the cause is gone"
    if isinstance(at, int) and at < _YEAR_5000:
        when = f" of {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
    return f"the reboot{when} did not help, so none follows: {remedy}"


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
    reason, boot, action, command = reboot_reason(found), record.system.boot_id, "", None
    tried = [each.at for each in reboots if each.reason == reason and each.boot_id != boot]
    if not ours(spec):
        action = "left alone with driver_source = 'present': have a driver of branch"
        action += f" {spec.driver.branch}, {spec.driver.minimum} or newer, installed and loaded"
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
    active, now, later = state == "active", state or "not there", enabled is not False
    right = active and later if wanted else not active and enabled is not True
    if right or not packages(spec, record).installed:
        return
    expected, named = f"driver_persistence = {wanted}", (UNIT, "nvidia-compute-utils*")
    if wanted and state == "masked":
        action = "left alone: it was masked by hand, so unmask it or declare"
        action, command = f"{action} driver_persistence = False", f"sudo systemctl unmask {UNIT}"
        yield report(id_, f"{UNIT} is masked", expected, action, command)
        return
    # An upgrade stops it, and with the old module still loaded it could not start again.
    waits = wanted and enabled is True and any(_module(spec, record))
    effect: Effect = "restart" if waits else "repair"
    found = f"{UNIT} is {now}, and {'enabled' if enabled else 'not enabled'}"
    action = "enable and start it" if wanted else "stop and disable it"
    yield repair(id_, found, expected, action, named, effect=effect)


def _closed(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what keeps the owner from the driver, by the owner's own tries to open it.

    The driver makes its devices with the mode that its module was loaded with, and nvidia-modprobe
    gives them that mode again: to change it on the device does not last. Files lie behind a folder
    on the way, or have a mode that root chose; a link that dangles has a finding of its own.
    """
    shut, owner = if_known(record.driver.closed, ()), layout.owner_name(spec, record)
    links = {path: each.real for path, each in if_known(record.libcuda.links, {}).items()}
    devices = [path for path in shut if path.startswith("/dev/")]
    others = [each for each in shut if links.get(each, each) not in {None, *devices}]
    if devices:
        found, command = f"{owner} may not open {some(devices, _NAMED)}", f"ls -l {devices[0]}"
        yield report(
            Id.DRIVER_CLOSED,
            found,
            "devices that the owner may read and write",
            "take NVreg_DeviceFile* out of modprobe's settings, or the rule of udev's away, and"
            " reboot; or put the owner into the group that may; see who says so",
            f"{command}; grep -rsn -e NVreg_DeviceFile -e nvidia {_SETTINGS}",
            stops=True,
        )
    if others:
        found, command = f"{owner} may not use {some(others, _NAMED)}", f"namei -l {others[0]}"
        expected = "libraries that the owner may read, and programs that the owner may run"
        action = "left alone, since root chose that mode, or that of a folder on the way: open it"
        yield report(Id.DRIVER_CLOSED, found, expected, action, command)


judge = Rules(
    *where(
        ours,
        *(_keyring, _files, _packages),
        *(_module_name, _kernels, _initramfs),
    ),
    *where(of_gpus, _loaded),
    *where(ours, _persistenced),
    *where(of_gpus, _closed),
)
"""In the order in which it is repaired."""
