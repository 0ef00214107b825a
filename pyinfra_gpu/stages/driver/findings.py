"""In what the driver is not as declared, on disk and in the running kernel. Judged, not touched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.packages import files as apt_files
from pyinfra_gpu.packages.names import LIBRARIES, driver_version, matching, of_kernel
from pyinfra_gpu.spec import HostSpec, system_files
from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu.stages import files
from pyinfra_gpu.stages.driver.inventory import (
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
from pyinfra_gpu.stages.files import File, lost_files
from pyinfra_gpu.stages.finding import CannotTell, Effect, Finding, Id, Stage, repair, report, stop
from pyinfra_gpu.stages.layout import findings as layout
from pyinfra_gpu.stages.rules import Rules, if_known, known, where
from pyinfra_gpu.text import some

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
_NAMED = 3  # so many are named
_SETTINGS = "/etc/modprobe.d /usr/lib/modprobe.d /etc/udev/rules.d"
UNDER_A_RUN = frozenset(
    {
        *(Id.DRIVER_KEYRING_REPLACED, Id.DRIVER_SOURCE_DIFFERS, Id.DRIVER_PINS_DIFFER),
        *(Id.DRIVER_BLACKLIST_DIFFERS, Id.DRIVER_INITRAMFS_STALE, Id.DRIVER_HOLD_DIFFERS),
    }
)
"""What is repaired while a training run is on: files and holds, which it does not use."""
NOT_CURED = (
    "one reboot for that did not help, so none follows: see `dkms status` and `dmesg` there, and"
    " reboot when the cause is gone"
)


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
    keys, path = record.nvidia.keyring, system_files.KEYRING
    mode = known(record.layout.entry(path)).mode
    if keys != (source.key_fingerprint,) or mode != KEYRING_MODE:
        held = keys.reason if isinstance(keys, Unknown) else ", ".join(keys or ()) or "no key"
        found = f"{path} holds {held}{f', with mode {mode}' if mode else ''}"
        expected, action = f"the key {source.key_fingerprint}", "fetch it and check its key"
        expected = f"{expected} alone, with mode {KEYRING_MODE}"
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


def _packages(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge each package: of the flavour, of the one version, whole, and on hold as declared.

    What is wrong is told by package, and all that is wrong in the same way is one finding.
    """
    known(record.nvidia.packages)
    found, driver = packages(spec, record), spec.driver
    if not found.wanted:  # preflight refuses the host
        return
    version, hold, names = target(spec, found), driver.hold, found.names
    right = f"driver {version or f'of branch {driver.branch}, {driver.minimum} or newer'}"
    flavoured, whole = f"{right} with {driver.modules} modules", "whole packages, as they came"
    missing = {name: f"{name} installed" for name in names if name in found.other}
    missing |= {name: f"{name} not installed" for name in found.wanted if name not in names}
    odd, held, damaged = dict[str, str](), dict[str, str](), dict[str, str]()
    for each in found.following:
        there = driver_version(each.version)
        if there not in (None, version):
            odd[each.name] = f"{'driver' if found.version else each.name} {there}"
        if each.held is not hold:
            held[each.name] = f"{each.name} {'not on hold' if hold else 'on hold'}"
    if libraries := " and ".join(foreign_libraries(record, found)):
        damaged |= dict.fromkeys(matching(names, LIBRARIES), libraries)
    damaged |= {each.package: str(each) for each in lost_files(record, names.__contains__)}
    half = [each.name for each in found.installed if not each.complete]
    damaged |= {name: f"{name} only partly installed" for name in half}
    then = "" if record.driver.loaded is None else _then(spec)
    holding = "hold" if hold else "unhold"
    for id_, wrong, expected, action, named in (
        (Id.DRIVER_NOT_INSTALLED, missing, flavoured, f"install the driver{then}", found.wanted),
        (Id.DRIVER_VERSION_DIFFERS, odd, right, f"install that version{then}", found.telling),
        (Id.DRIVER_FILES_DAMAGED, damaged, whole, "reinstall the packages", ()),
        (Id.DRIVER_HOLD_DIFFERS, held, f"driver_hold = {hold}", f"apt-mark {holding}", ()),
    ):
        if wrong:
            said = some([*dict.fromkeys(wrong.values())], _NAMED)
            yield repair(id_, said, expected, action, (*wrong, *named))


def _then(spec: HostSpec) -> str:
    """Say what follows on another driver being installed under the loaded module."""
    reboot = "" if spec.driver.reboot == "never" else ", or reboot where only that helps"
    tested = "" if spec.smoke.run == "skip" else ", and run the smoke test again"
    return f", reload its module{reboot}{tested}"


def foreign_libraries(record: Record, found: Packages) -> list[str]:
    """Return the libraries that programs load, and that are not of the driver's one version."""
    paths = (record.driver.libcuda, record.driver.libml) if found.version else ()
    named = [match for path in paths if (match := _LIBRARY.search(str(path)))]
    return [match.string for match in named if match[1] != found.version]


# -- what the next boot finds


def unbuilt(spec: HostSpec, record: Record) -> dict[str, str | None]:
    """Return the kernels for which the module is to be built, and which version there is of it."""
    modules, version = if_known(record.kernel.modules, None), packages(spec, record).version
    both = kernels(record) if modules is not None and version else ()
    return {each: there for each in both if (there := (modules or {}).get(each)) != version}


def _kernels(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge, of the running and the next kernel, the headers to build with and the module."""
    kernel, own, found = record.kernel, archive(spec, record), packages(spec, record)
    headers = known(kernel.headers)
    for name in () if own else kernels(record):
        if headers.get(name) is False:
            said, package = f"no headers for kernel {name}", catalogue().headers_package(name)
            expected, action = "headers, to build a module with", f"install {package}"
            yield repair(Id.DRIVER_HEADERS_MISSING, said, expected, action, (package,))
    for each in (kernel.installed, kernel.modules, record.packages.half_configured):
        known(each)
    running = known(record.system.kernel)
    for name, there in unbuilt(spec, record).items():
        said = f"{f'module {there}' if there else 'no module'} for kernel {name}"
        expected = f"module {found.version}"
        expected += "" if name == running else ", or the next boot has no GPU"
        action = f"{'install it from the archive' if own else 'build it'} for {name}"
        named = (*of_kernel(name), "dkms", *found.wanted)
        yield repair(Id.DRIVER_MODULE_NOT_BUILT, said, expected, action, named)


def _initramfs(spec: HostSpec, record: Record) -> Iterator[Finding]:
    del spec
    if known(record.kernel.initramfs) == "stale":
        found = "the initramfs is older than the blacklist"
        expected = "an initramfs with the blacklist in it"
        yield repair(Id.DRIVER_INITRAMFS_STALE, found, expected, "update the initramfs")


# -- the running kernel


def reboot_reason(spec: HostSpec, record: Record) -> str | None:
    """Return why the module is to be reloaded, or the host rebooted; the same every night."""
    found = _module(spec, record)
    return found.found if found else None


def users(record: Record) -> tuple[str, ...] | Unknown:
    """Return who uses the GPUs, beside NVIDIA's own services."""
    found = record.driver.users
    if isinstance(found, Unknown):
        return found
    return tuple(each for each in found if each.partition(" (")[2][:-1] not in SERVICES)


def people(record: Record) -> tuple[tuple[str, ...] | Unknown, ...]:
    """Return whose work a reboot would end: on the GPUs, at a terminal, behind a lock."""
    return (users(record), record.power.sessions, record.power.inhibitors)


def against_reboot(spec: HostSpec, record: Record) -> list[str]:
    """Return who and what stands against a reboot; what is not told is against it, too."""
    half, holder = record.packages.half_configured, record.packages.lock_holder
    if not isinstance(half, Unknown):
        half = tuple(f"{each}, which is not fully installed" for each in half)
    asked = [half, (holder,) if isinstance(holder, str) else holder or ()]
    if spec.driver.reboot != "always":
        asked = [*people(record), *asked]
    each_told = ((each.reason,) if isinstance(each, Unknown) else each for each in asked)
    return [who for reported in each_told for who in reported]


def _module(spec: HostSpec, record: Record) -> Finding | None:
    """Judge what of the driver is in the kernel, whoever keeps it and whatever was tried."""
    driver, found, busy = record.driver, packages(spec, record), users(record)
    loaded, on_disk = known(driver.loaded), known(driver.on_disk)
    free = [name for name in ("nouveau", "nova") if known(getattr(driver, name))]
    who = busy if isinstance(busy, Unknown) else some(busy, _NAMED)
    when = "" if busy == () else f", when nobody uses the GPUs (now {who})"
    named = (*found.telling, *of_kernel(record.system.kernel))
    other_flavour = ours(spec) and driver.open_modules is (spec.driver.modules != "open")
    if free:
        there, expected = f"{' and '.join(free)} is bound to the GPUs", "NVIDIA's module"
        action = f"reboot{when}"
    elif loaded is None:
        there, expected = "no NVIDIA module is loaded", f"module {on_disk or 'of the driver'}"
        action = "load it"
    elif on_disk and (loaded != on_disk or other_flavour):
        there = f"module {loaded}{' of the other flavour' if other_flavour else ''} is loaded"
        expected, action = f"{on_disk}, which is installed", f"load the installed module{when}"
        if other_flavour:
            expected = f"{on_disk} with {spec.driver.modules} modules"
        if spec.driver.reboot != "never":
            action += ", or reboot where only that helps"
    else:
        return None
    return repair(Id.DRIVER_MODULE_DIFFERS, there, expected, action, named, effect="restart")


def _loaded(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge the loaded module; what one reboot did not cure is told, and never tried again.

    With ``driver_source = "present"`` somebody else keeps the driver: only what keeps a GPU from
    working is told, and the run stops at it.
    """
    if (found := _module(spec, record)) is None:
        return
    noted = (x for x in if_known(record.power.reboots, ()) if x.reason == found.found)
    action, command = "", None
    if not ours(spec):
        action = "left alone with driver_source = 'present': have a driver of branch"
        action += f" {spec.driver.branch}, {spec.driver.minimum} or newer, installed and loaded"
    elif any(each.boot_id != record.system.boot_id for each in noted):
        action, command = NOT_CURED, "sudo systemctl reboot"
    left = replace(found, effect="report", action=action, command=command, stops=True)
    yield left if action else found


def _persistenced(spec: HostSpec, record: Record) -> Iterator[Finding]:
    wanted, id_ = spec.driver.persistence, Id.DRIVER_PERSISTENCED_DIFFERS
    state, enabled = known(record.driver.persistenced), known(record.driver.persistenced_enabled)
    active = state == "active"
    right = active and enabled is not False if wanted else not active and enabled is not True
    if right or not packages(spec, record).installed:
        return
    expected, named = f"driver_persistence = {wanted}", (UNIT, "nvidia-compute-utils*")
    if wanted and state == "masked":
        action = "left alone: it was masked by hand, so unmask it or declare"
        action, command = f"{action} driver_persistence = False", f"sudo systemctl unmask {UNIT}"
        yield report(id_, f"{UNIT} is masked", expected, action, command)
        return
    # An upgrade stops it, and with the old module still loaded it could not start again.
    waits = wanted and enabled is True and _module(spec, record)
    effect: Effect = "restart" if waits else "repair"
    found = f"{UNIT} is {state or 'not there'}, and {'enabled' if enabled else 'not enabled'}"
    action = "enable and start it" if wanted else "stop and disable it"
    yield repair(id_, found, expected, action, named if waits else (), effect=effect)


def _closed(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what keeps the owner from the driver, by the owner's own tries to open it.

    The driver makes its devices with the mode that its module was loaded with, so to change it on
    a device does not last. A link that dangles has a finding of its own.
    """
    owner = layout.owner_name(spec, record)
    links = {path: each.real for path, each in if_known(record.libcuda.links, {}).items()}
    closed = if_known(record.driver.closed, ())
    if shut := [each for each in closed if links.get(each, each) is not None]:
        yield report(
            Id.DRIVER_CLOSED,
            f"{owner} may not use {some(shut, _NAMED)}",
            "a driver whose devices, libraries and programs the owner may use",
            "take back what keeps the owner out: NVreg_DeviceFile* in modprobe's settings, a rule"
            " of udev's, the mode of a folder, or dpkg-statoverride; see who says so",
            f"namei -l {shut[0]}; grep -rsn -e NVreg_DeviceFile -e nvidia {_SETTINGS}",
            stops=shut[0].startswith("/dev/"),
        )


judge = Rules(
    *where(
        ours,
        *(_keyring, _files, _packages),
        *(_kernels, _initramfs),
    ),
    *where(of_gpus, _loaded),
    *where(ours, _persistenced),
    *where(of_gpus, _closed),
)
"""In the order in which it is repaired."""
