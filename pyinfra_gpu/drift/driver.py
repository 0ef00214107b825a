"""The driver as declared and as found: every way in which they differ. Judged, never touched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from pyinfra_gpu.drift import driver_running, files
from pyinfra_gpu.drift.driver_inventory import (
    Packages,
    Repository,
    archive,
    from_nvidia,
    kernels,
    ours,
    packages,
    repository,
    target,
    trusts_nvidia,
    without_headers,
)
from pyinfra_gpu.drift.files import File, lost_files, packages_of, told
from pyinfra_gpu.drift.finding import CannotTell, Finding, Id, Stage, repair, report
from pyinfra_gpu.drift.rules import Rules, if_known, known, where
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.packages import files as apt_files
from pyinfra_gpu.packages.names import LIBRARIES, branch_of, driver_version, of_kernel
from pyinfra_gpu.spec import HostSpec, system_files
from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu.text import some

STAGE = Stage.DRIVER

TRUST = (
    Id.DRIVER_KEYRING_REPLACED,
    Id.DRIVER_SOURCE_DIFFERS,
    Id.DRIVER_PINS_DIFFER,
    Id.DRIVER_BLACKLIST_DIFFERS,
)
"""What `driver.trusted` repairs."""

MOVES = (Id.DRIVER_NOT_INSTALLED, Id.DRIVER_VERSION_DIFFERS)
INSTALL = (*MOVES, Id.DRIVER_FILES_DAMAGED, Id.DRIVER_HEADERS_MISSING)
"""What `driver.installed` repairs."""

BOOT = (
    Id.DRIVER_HOLD_DIFFERS,
    Id.DRIVER_MODULE_NOT_BUILT,
    Id.DRIVER_INITRAMFS_STALE,
    Id.DRIVER_MODULE_NAME_DIFFERS,
)
"""What `driver.ready_for_boot` repairs."""

KEYRING_MODE = "0644"
BLACKLIST = """\
blacklist nouveau
options nouveau modeset=0
# The new free driver has names of its own since Linux 6.15.
blacklist nova_core
blacklist nova_drm
"""
_LIBRARY = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.(\d{3}\.\d{2,3}(?:\.\d{2})?)$")


def summary(spec: HostSpec, record: Record) -> str:
    """Name the driver, where it is from and for which kernels, where nothing differs."""
    if spec.accelerator != "nvidia":
        return ""
    loaded = f"driver {record.driver.loaded} loaded"
    if not ours(spec):
        return loaded
    origin = "repository" if from_nvidia(spec) else "the distribution's archive"
    versions, newest = ", ".join(packages(spec, record).versions), record.kernel.newest
    built = "module built for every kernel"
    if newest not in (None, record.system.kernel):
        built += f"; kernel {newest} comes with the next boot"
    return f"{origin} and pins as declared; driver {versions} from packages; {built}; {loaded}"


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
    pins = apt_files.preferences(driver.branch or 0, driver.version, toolkit, apart=apart)
    held = apt_files.unattended(with_kernels=own is not None)
    free = system_files.HEADER + BLACKLIST
    wanted = driver.version or f"branch {driver.branch}"
    origin = "NVIDIA's repository" if from_nvidia(spec) else "the distribution's archive"
    held_to = f"pins that hold the driver to {wanted} from {origin}"
    yield _ours(pin, apt_files.PREFERENCES, pins, held_to)
    yield _ours(pin, apt_files.UNATTENDED, held, "unattended-upgrades kept off NVIDIA's packages")
    kept_off = "nouveau and nova kept off the GPUs"
    yield _ours(Id.DRIVER_BLACKLIST_DIFFERS, system_files.MODPROBE, free, kept_off)
    if source := trusted(spec, record):
        listed, expected = apt_files.sources(source.url), f"packages from {source.url}"
        yield _ours(Id.DRIVER_SOURCE_DIFFERS, apt_files.SOURCES, listed, expected)


def _ours(id_: Id, path: str, text: str, expected: str) -> File:
    return File(id=id_, path=path, content=text.encode(), expected=expected)


def twice(record: Record, source: Repository) -> list[str]:
    """Return the other lists with the declared repository; none works where their keys differ."""
    listed = known(record.nvidia.sources)
    same = [each.file for each in listed if each.uri.rstrip("/") == source.url]
    return [file for file in dict.fromkeys(same) if file != apt_files.SOURCES]


def _keyring(spec: HostSpec, record: Record) -> Iterator[Finding]:
    if (source := trusted(spec, record)) is None:
        return
    keys, path = record.nvidia.keyring, system_files.KEYRING
    entry = known(record.layout.entry(path))
    right = keys == (source.key_fingerprint,)
    if right and entry.mode == KEYRING_MODE:
        return
    if entry.kind == "dir":
        found = f"{path} is a directory"
    elif isinstance(keys, Unknown):
        found = f"{path} holds something else ({keys.reason})"
    elif keys is None:
        found = "no key of NVIDIA's repository"
    elif right:
        found = f"{path} cannot be read by everybody"
    else:
        found = f"{path} holds {', '.join(keys) or 'no key'}"
    how = "fetch the repository's keyring and check its key"
    action = _writing(record, path, how)
    yield repair(Id.DRIVER_KEYRING_REPLACED, found, f"the key {source.key_fingerprint}", action)


def _files(spec: HostSpec, record: Record) -> Iterator[Finding]:
    for file in declared(spec, record):
        for each in files.judge(record, [file]):
            yield replace(each, action=_writing(record, file.path, each.action))


def _writing(record: Record, path: str, how: str) -> str:
    """Say what puts a file right: a directory in its place is left alone."""
    entry = if_known(record.layout.entry(path), None)
    if entry and entry.kind == "dir":
        return f"move that directory away, e.g. `mv {path} {path}.old`: a run leaves it alone"
    return how


def _twice(spec: HostSpec, record: Record) -> Iterator[Finding]:
    source = trusted(spec, record)
    for file in twice(record, source) if source else ():
        found = f"{file} names the declared repository a second time"
        expected = f"only {apt_files.SOURCES} to name it"
        action = f"set {file} aside as {file}.disabled"
        yield repair(Id.DRIVER_SOURCE_DIFFERS, found, expected, action)


# -- packages


def _known(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Ask for what has to be known before anything is installed."""
    kernel = record.kernel
    installed = (record.nvidia.packages, record.packages.half_configured)
    for each in (*installed, kernel.headers, kernel.installed, record.system.kernel):
        known(each)
    if not packages(spec, record).wanted:
        raise CannotTell(
            f"no packages are known for driver branch {spec.driver.branch} with"
            f" {spec.driver.modules} modules on {record.system.os_name}: install it yourself and"
            " declare `driver_source = 'present'`"
        )
    yield from ()


def _installed(spec: HostSpec, record: Record) -> Packages:
    known(record.nvidia.packages)
    return packages(spec, record)


def _missing(spec: HostSpec, record: Record) -> Iterator[Finding]:
    found, driver = _installed(spec, record), spec.driver
    flavour, names = f"{driver.modules} kernel modules", ", ".join(found.missing)
    if found.foreign:
        there, action = ", ".join(found.foreign), f"install {', '.join(found.wanted)} instead"
        named = (*found.foreign, *found.wanted)
        yield repair(Id.DRIVER_NOT_INSTALLED, f"{there} installed", f"the {flavour}", action, named)
    elif found.missing:
        there = f"{names} not installed" if found.versions else "no driver installed"
        expected = f"driver {driver.version or f'of branch {driver.branch}'} with {flavour}"
        action = f"install {names}"
        yield repair(Id.DRIVER_NOT_INSTALLED, there, expected, action, found.missing)


def _version(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """At most one of: another branch, mixed, too old or not the declared version."""
    found, branch = _installed(spec, record), spec.driver.branch
    versions, wanted, named = found.versions, target(spec, found), found.telling
    if moved := [each for each in versions if branch_of(each) != branch]:
        there, expected = f"driver {', '.join(moved)}", f"branch {branch}"
        action = f"install {expected}"
    elif len(versions) > 1:
        rows = ((each.name, driver_version(each.version)) for each in found.following)
        odd = {name: version for name, version in rows if version != wanted}
        there = some([f"{name} {version}" for name, version in odd.items()], 3)
        most, named = wanted or "the newest of the branch", (*odd, *named)
        expected, action = f"all of the driver to be {most}", f"bring all of the driver to {most}"
    elif versions and versions[0] != wanted:
        expected = f"driver {wanted or f'{spec.driver.minimum} or newer'}"
        there, action = f"driver {versions[0]}", f"install {expected}"
    else:
        return
    yield repair(Id.DRIVER_VERSION_DIFFERS, there, expected, action, named)


def _headers(spec: HostSpec, record: Record) -> Iterator[Finding]:
    if lacking := () if archive(spec, record) else without_headers(record):
        found = f"no headers for kernel {', '.join(lacking)}"
        named = tuple(f"linux-headers-{kernel}" for kernel in lacking)
        expected = "headers, to build the driver's module with"
        yield repair(Id.DRIVER_HEADERS_MISSING, found, expected, "install them", named)


def _damaged(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what packages of one version cannot explain; mixed versions are told as that."""
    found, id_ = _installed(spec, record), Id.DRIVER_FILES_DAMAGED
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


def library_version(path: object) -> str | None:
    """Return the driver's version in a library's file name, None where it has none."""
    match = _LIBRARY.search(path) if isinstance(path, str) else None
    return match[1] if match else None


def foreign_libraries(record: Record, found: Packages) -> list[str]:
    """Return the libraries that programs load, and that are not of the driver's one version."""
    if len(found.versions) != 1:
        return []
    paths = (record.driver.libcuda, record.driver.libml)
    return [str(p) for p in paths if library_version(p) not in (None, found.versions[0])]


# -- what the next boot finds


def unbuilt(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return those of both kernels that have no module of the installed packages' version."""
    modules, versions = if_known(record.kernel.modules, None), packages(spec, record).versions
    if modules is None or len(versions) != 1:
        return ()
    return tuple(kernel for kernel in kernels(record) if modules.get(kernel) != versions[0])


def owed(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return the kernels for which the module is to be built: anew where DKMS has forgotten it."""
    return unbuilt(spec, record) or (kernels(record)[:1] if _unregistered(spec, record) else ())


def _unregistered(spec: HostSpec, record: Record) -> bool:
    """Tell whether DKMS has nothing from which to build the module for a kernel to come."""
    sources, versions = if_known(record.kernel.sources, None), packages(spec, record).versions
    if sources is None or archive(spec, record) or len(versions) != 1:
        return False
    return versions[0] not in sources


def wrongly_held(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return the driver's packages that are not on hold, or are, against `driver_hold`."""
    following = packages(spec, record).following
    return tuple(each.name for each in following if each.held is not spec.driver.hold)


def _module_name(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """A rule of modprobe's in a file of somebody's is left alone: it may be there on purpose."""
    rule = known(record.driver.module)
    if not packages(spec, record).installed or rule is None or rule.startswith("nvidia "):
        return
    name, _, file = rule.partition(" ")
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
        found = f"{some(names, 3)} {'not on hold' if hold else 'on hold'}"
        action = "put them on hold" if hold else "take them off hold"
        yield repair(Id.DRIVER_HOLD_DIFFERS, found, f"driver_hold = {hold}", action)


def _modules(spec: HostSpec, record: Record) -> Iterator[Finding]:
    known(record.kernel.installed)
    modules, found = known(record.kernel.modules), packages(spec, record)
    id_, missing = Id.DRIVER_MODULE_NOT_BUILT, unbuilt(spec, record)
    for kernel in missing:
        version, running = modules.get(kernel), kernel == record.system.kernel
        there = f"{f'module {version}' if version else 'no module'} for kernel {kernel}"
        expected = f"module {found.versions[0]}{'' if running else ', or the next boot has no GPU'}"
        how = "install the distribution's" if archive(spec, record) else "build it"
        named = (*of_kernel(kernel), "dkms", *found.wanted)
        yield repair(id_, there, expected, f"{how} for {kernel}", named)
    if not missing and _unregistered(spec, record):
        there = f"DKMS has no source of module {found.versions[0]}"
        expected = f"module {found.versions[0]} registered, or the next kernel gets none"
        yield repair(id_, there, expected, "register and build it", ("dkms", *found.wanted))


def _initramfs(spec: HostSpec, record: Record) -> Iterator[Finding]:
    del spec
    if known(record.kernel.initramfs) == "stale":
        found = "the initramfs is older than the blacklist"
        expected = "an initramfs with the blacklist in it"
        yield repair(Id.DRIVER_INITRAMFS_STALE, found, expected, "update the initramfs")


judge = Rules(
    *where(
        ours,
        *(_keyring, _files, _twice),
        *(_known, _missing, _version, _headers, _damaged),
        *(_module_name, _holds, _modules, _initramfs),
    ),
    *driver_running.RULES,
)
"""In the order in which it is repaired."""
