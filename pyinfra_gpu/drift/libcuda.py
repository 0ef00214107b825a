"""In what the driver's library is not as programs need to find it.

Programs find it in two ways. At run time the linker's cache says where libcuda.so.1 is; at link
time `-lcuda` takes the libcuda.so of a folder that the compiler searches. Both must end at the file
that the driver's package brought, through libcuda.so.1: a link to libcuda.so.580.95.05 dangles
after the next driver update. The stubs of a CUDA toolkit are for linking only (a program that loads
them gets error 34), its compat libraries for other GPUs and older drivers (error 804).
"""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename, dirname
from typing import TYPE_CHECKING

from pyinfra_gpu.drift.cuda import home
from pyinfra_gpu.drift.finding import Finding, Id, Stage, note, repair, report, stop
from pyinfra_gpu.drift.libcuda_files import (
    DEV,
    ML,
    SONAME,
    has_driver,
    is_drivers,
    link,
    path,
    version_of,
)
from pyinfra_gpu.drift.proof import outdated
from pyinfra_gpu.drift.rules import Rules, if_known, known
from pyinfra_gpu.on_host import proofs
from pyinfra_gpu.packages import apt
from pyinfra_gpu.packages.names import LIBRARIES

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import CacheEntry, Link, Record
    from pyinfra_gpu.spec import HostSpec

STAGE = Stage.LIBCUDA

PROOF = (Id.LIBCUDA_UNPROVEN,)
"""What `libcuda.proven` repairs."""

LINKS = tuple(each for each in Id.of(STAGE) if each is not Id.LIBCUDA_UNPROVEN)
"""What `libcuda.linked` repairs."""

_COMPAT = ("cuda-compat-*", *LIBRARIES)


def summary(spec: HostSpec, record: Record) -> str:
    """Name the library that programs get, where nothing differs."""
    if spec.accelerator != "nvidia":
        return ""
    entry = first(record)
    return entry.real or "" if entry else "no driver's library yet"


def toolkit_link(spec: HostSpec) -> str:
    """Return the path of the link inside the declared toolkit."""
    return f"{home(spec)}/lib64/{DEV}"


def first(record: Record, name: str = SONAME) -> CacheEntry | None:
    """Return the library that programs get, by the linker's cache; None where there is none."""
    cache = if_known(record.libcuda.cache, ())
    return next((entry for entry in cache if entry.name == name and entry.real), None)


def troubles(record: Record) -> dict[str, str]:
    """Return which of the driver's links are wrong: path -> what is wrong with it, a clause."""
    links = if_known(record.libcuda.links, {})
    paths = [path(record, name) for name in (SONAME, DEV, ML)]
    told = {each: _trouble(record, each, links[each]) for each in paths if each in links}
    return {where: said for where, said in told.items() if said}


def _trouble(record: Record, where: str, there: Link) -> str | None:
    """Say what is wrong with one link, the worst first; None where it is as it should be."""
    if there.kind == "absent":
        return f"there is no {where}"
    if there.real is None and there.kind == "link":
        return f"{where} leads to {there.target}, which is not there, or empty"
    if there.real is None:
        return f"{where} is a {there.kind}"
    if astray := _astray(there.real):
        return f"{where} leads to {there.real}, {astray}"
    if there.kind != "link":  # a copy: the next update leaves it behind
        return f"{where} is a {there.kind}"
    if basename(where) == DEV and version_of(there.target) is not None:
        return f"{where} leads to {there.target} and not to {SONAME}"
    return None if is_drivers(record, there.real) else f"{where} leads to {there.real}"


def _astray(file: str) -> str | None:
    folders = dirname(file).split("/")
    if "stubs" in folders:
        return "a stub that is for linking only"
    return "of a CUDA compatibility package" if "compat" in folders else None


def _repair(spec: HostSpec, id_: Id, found: str, expected: str, action: str) -> Finding:
    """Return a finding that root repairs; without root it is left alone."""
    if spec.privilege == "none":
        action = f"left alone with privilege = 'none'; as root one would {action}"
        return report(id_, found, expected, action, packages=LIBRARIES)
    return repair(id_, found, expected, action, LIBRARIES)


def _links(spec: HostSpec, record: Record) -> Iterator[Finding]:
    if spec.accelerator != "nvidia":
        return
    for each in (record.libcuda.cache, record.libcuda.links, record.libcuda.files):
        known(each)
    if not has_driver(record):
        if spec.driver.source == "present" and not _is_loaded_ones(record, first(record)):
            yield _no_driver()
        return
    action = "reinstall its package, or link it where it belongs to none"
    for where, found in troubles(record).items():
        name = basename(where)
        leads = f"a link to {SONAME}" if name == DEV else f"a link to the driver's {name[:-2]}.*"
        absent = link(record, where).kind == "absent"
        id_ = Id.LIBCUDA_MISSING if absent else Id.LIBCUDA_LINK_WRONG
        yield _repair(spec, id_, found, leads, action)


def _no_driver() -> Finding:
    return stop(
        Id.LIBCUDA_MISSING,
        "there is no libcuda of a driver",
        "the library of the driver that is declared to be present",
        "left alone with driver_source = 'present': install the driver's libraries, or"
        " declare driver_source = 'nvidia'",
    )


def _cache(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge the linker's cache: what is in it is there, and the driver's library is in it."""
    if spec.accelerator != "nvidia" or not has_driver(record):
        return
    cache = known(record.libcuda.cache)
    wrong = [f"{entry.path} is not there" for entry in cache if entry.real is None]
    for name in (SONAME, ML):
        real = link(record, path(record, name)).real
        if real is not None and (name, real) not in [(entry.name, entry.real) for entry in cache]:
            wrong.append(f"{path(record, name)} is not in it")
    for each in wrong:
        found = f"the linker's cache is stale: {each}"
        yield _repair(spec, Id.LIBCUDA_CACHE_STALE, found, "what is on the disk", "run ldconfig")


def _is_loaded_ones(record: Record, entry: CacheEntry | None) -> bool:
    """Tell whether a library has the loaded module's version, wherever it is."""
    version = version_of(entry.real) if entry else None
    return version is not None and version == record.driver.loaded


def _in_libdir(record: Record, entry: CacheEntry) -> bool:
    """Tell whether it is in the driver's folder, which the cache may name without /usr."""
    libdir = record.libcuda.libdir
    return dirname(entry.path) in (libdir, libdir.removeprefix("/usr"))


def _foreign_first(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Programs load the first libcuda.so.1 in the cache. One we did not bring is left alone.

    A driver that is somebody else's may have its library anywhere (containers mount it); one of
    our links is judged as a link.
    """
    entry = first(record) if spec.accelerator == "nvidia" else None
    if entry is None or is_drivers(record, entry.real) or _in_libdir(record, entry):
        return
    if spec.driver.source == "present" and _is_loaded_ones(record, entry):
        return
    yield report(
        Id.LIBCUDA_FOREIGN_FIRST,
        f"programs load {entry.path}",
        f"the driver's {path(record, SONAME)}",
        "left alone, since somebody put it there: remove it or the line in /etc/ld.so.conf.d that"
        " names its folder, then run ldconfig",
        f"grep -rn {dirname(entry.path)} /etc/ld.so.conf /etc/ld.so.conf.d; dpkg -S {entry.path}",
        _COMPAT,
        stops=True,
    )


def _seconds(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Find further libcuda.so.1 in the cache, which no program gets as long as they are behind.

    Where its folder is set in a file, that is told of already; see `_loader_paths`.
    """
    used = first(record) if spec.accelerator == "nvidia" else None
    if used is None or not (is_drivers(record, used.real) or _in_libdir(record, used)):
        return
    told = [row.partition(": ")[2] for row in if_known(record.libcuda.loader_paths, ())]
    for entry in known(record.libcuda.cache):
        second = entry.name == SONAME and entry.real and not _in_libdir(record, entry)
        if second and dirname(entry.path) not in told:
            yield note(
                Id.LIBCUDA_SECOND,
                f"a second {SONAME} in the linker's cache: {entry.path}, which is {entry.real}",
                f"the driver's {path(record, SONAME)} alone",
                "left alone, since programs get the driver's: remove it, then run ldconfig",
                packages=_COMPAT,
            )


def _loader_paths(spec: HostSpec, record: Record) -> Iterator[Finding]:
    if spec.accelerator != "nvidia":
        return
    names = [each.name for each in if_known(record.nvidia.packages, ())]
    compat = [name for name in names if name.startswith("cuda-compat")]
    for row in known(record.libcuda.loader_paths):
        file, _, folder = row.partition(": ")
        kind = "stubs" if "stubs" in folder else "compat"
        action = "left alone, since the file is not ours"
        if kind == "compat" and compat:
            command = apt.remove_by_hand(compat)
        else:
            action += ": remove that line, then run ldconfig; see whose it is"
            command = f"dpkg -S {file}"
        found, expected = f"{file} has the loader search {folder}", f"no {kind} libraries there"
        yield report(Id.LIBCUDA_LOADER_PATH, found, expected, action, command, ("cuda-compat-*",))


def _toolkit_link(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge the link inside the toolkit, which is there only if data asks for it.

    A link that nobody declared is somebody's; where it leads programs astray, it is told.
    """
    if spec.accelerator != "nvidia" or spec.cuda.release is None:
        return
    known(record.libcuda.links)
    where, wanted = toolkit_link(spec), path(record, SONAME)
    there, id_ = link(record, where), Id.LIBCUDA_TOOLKIT_LINK_DIFFERS
    leads = f"{where} leads to {there.target}"
    if spec.libcuda.toolkit_link:
        if (there.kind, there.target) != ("link", wanted):
            absent = f"there is no {where}" if there.kind == "absent" else None
            found = leads if there.kind == "link" else absent or f"{where} is a {there.kind}"
            yield repair(id_, found, f"a link to {wanted}", "link it", ("cuda-cudart-*",))
    elif there.kind == "link" and (there.real is None or _astray(there.real)):
        yield report(
            id_,
            leads,
            "nothing there, or libcuda_toolkit_link = True",
            "left alone, since it was made by hand and is not declared",
            f"sudo rm {where} && sudo ldconfig",
        )


def _unproven(spec: HostSpec, record: Record) -> Iterator[Finding]:
    if spec.accelerator != "nvidia":
        return
    unproven = outdated(record.libcuda.proof, state(spec, record))
    no_compiler = spec.privilege == "none" and record.cuda.gcc is None  # and none is installed
    if unproven is None or no_compiler:
        return
    # While another module is loaded than the library is made for, nothing can be proven.
    entry = first(record)
    version = version_of(entry.real) if entry and is_drivers(record, entry.real) else None
    yield Finding(
        id=Id.LIBCUDA_UNPROVEN,
        found=f"not verified that programs load libcuda: {unproven}",
        expected="two programs compiled and run with what is installed now",
        effect="repair" if version in (None, record.driver.loaded) else "restart",
        action="compile and run them",
    )


def state(spec: HostSpec, record: Record) -> dict[str, object]:
    """Return all that the proof depends on: library, links, cache, compiler."""
    cache = if_known(record.libcuda.cache, None)
    dev = link(record, path(record, DEV))
    return {
        "the linker's cache": ""
        if cache is None
        else [f"{each.path} {each.real}" for each in cache],
        DEV: [dev.kind, dev.target, dev.real],
        "gcc": str(record.cuda.gcc),
        "driver_source": spec.driver.source,
        "rehearsal": spec.rehearsal,
        "what is compiled for it": proofs.digest("libcuda"),
    }


judge = Rules(_links, _cache, _loader_paths, _foreign_first, _seconds, _toolkit_link, _unproven)
