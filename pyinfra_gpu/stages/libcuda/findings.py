"""In what the driver's library is not as programs need to find it.

Programs find it in two ways. At run time the linker's cache says where libcuda.so.1 is; at link
time `-lcuda` takes the libcuda.so of a folder that the compiler searches. Both must end at the file
that the driver's package brought, through libcuda.so.1: a link to libcuda.so.580.95.05 dangles
after the next driver update. The stubs of a CUDA toolkit are for linking only (a program that loads
them gets error 34), its compat libraries for other GPUs and older drivers (error 804).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import basename, dirname

from pyinfra_gpu.facts.record import CacheEntry, Link, Record
from pyinfra_gpu.facts.stamps import outdated
from pyinfra_gpu.on_host import proofs
from pyinfra_gpu.packages.names import LIBRARIES, matching
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stages.cuda.findings import home
from pyinfra_gpu.stages.driver.inventory import of_gpus
from pyinfra_gpu.stages.finding import Effect, Finding, Id, Stage, repair, report, stop, unless_root
from pyinfra_gpu.stages.rules import Rules, if_known, known, where
from pyinfra_gpu.text import some

STAGE = Stage.LIBCUDA
SONAME, DEV, ML = "libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"


def summary(spec: HostSpec, record: Record) -> str:
    """Name the library that programs get, where nothing differs."""
    entry = _first(record)
    text = entry.real or "" if entry else "no driver's library yet"
    return text if of_gpus(spec) else ""


def path(record: Record, name: str) -> str:
    """Return where a library's link belongs on this host."""
    return f"{record.system.libdir}/{name}"


def toolkit_link(spec: HostSpec) -> str:
    """Return the path of the link inside the declared toolkit."""
    return f"{home(spec)}/lib64/{DEV}"


def link(record: Record, where: str) -> Link:
    """Return what stands at a path; nothing where it was not looked at."""
    absent = Link(kind="absent", target=None, real=None)
    return if_known(record.libcuda.links, {}).get(where, absent)


def _is_drivers(record: Record, file: str | None) -> bool:
    """Tell whether packages of a driver put a file there: Debian's own ones below nvidia/."""
    libdir, name = record.system.libdir, r"lib(cuda|nvidia-ml)\.so\.\d{3}(\.\d+)+"
    place = rf"{re.escape(libdir)}/(nvidia/([^/]+/)?)?"
    return bool(libdir) and re.fullmatch(f"{place}{name}", file or "") is not None


def library_packages(record: Record) -> list[str]:
    """Return the installed packages that bring the driver's libraries, the most telling first."""
    return matching((each.name for each in if_known(record.nvidia.packages, ())), LIBRARIES)


def has_library(record: Record) -> bool:
    """Tell whether libcuda.so.1 leads to a file of the driver's."""
    return _is_drivers(record, link(record, path(record, SONAME)).real)


def _version_of(file: str | None) -> str | None:
    """Return the version in a library's file name, "580.95.05" of libcuda.so.580.95.05."""
    match = re.search(r"\.so\.(\d+(?:\.\d+)+)$", file or "")
    return match[1] if match else None


def _first(record: Record) -> CacheEntry | None:
    """Return the libcuda.so.1 that programs get by the linker's cache, if any."""
    cache = if_known(record.libcuda.cache, ())
    return next((entry for entry in cache if entry.name == SONAME and entry.real), None)


# -- links


def wrong_links(spec: HostSpec, record: Record) -> dict[str, str]:
    """Return which links do not lead where they should: path -> what is wrong, a clause.

    The link inside the toolkit is one of them where it is declared.
    """
    there, inside = if_known(record.libcuda.links, {}), toolkit_link(spec)
    ours = bool(library_packages(record)) or has_library(record)
    paths = [path(record, name) for name in (SONAME, DEV, ML)] if ours else []
    found = {each: _wrong(record, each) for each in paths if each in there}
    if spec.libcuda.toolkit_link and link(record, inside).target != path(record, SONAME):
        found[inside] = _at(record, inside)
    return {where: said for where, said in found.items() if said}


def _at(record: Record, where: str) -> str:
    there = link(record, where)
    how = (
        f"points to {there.real or there.target}" if there.kind == "link" else f"is a {there.kind}"
    )
    dangles = (
        ", which does not exist or is empty" if there.kind == "link" and not there.real else ""
    )
    return f"there is no {where}" if there.kind == "absent" else f"{where} {how}{dangles}"


def _wrong(record: Record, where: str) -> str:
    """Say what is wrong with one link; empty where nothing is. The next update passes by a copy."""
    there = link(record, where)
    if there.kind != "link" or not _is_drivers(record, there.real):
        return _at(record, where)
    pinned = basename(where) == DEV and _version_of(there.target) is not None
    return f"{where} points to {there.target} and not to {SONAME}" if pinned else ""


def _links(spec: HostSpec, record: Record) -> Iterator[Finding]:
    for each in (record.libcuda.cache, record.libcuda.links):
        known(each)
    for where_, found in wrong_links(spec, record).items():
        to = f"the driver's {basename(where_)[:-2]}.*" if where_.endswith(".1") else SONAME
        to = path(record, SONAME) if where_ == toolkit_link(spec) else to
        action = "reinstall its package, or link it where it belongs to none"
        differs = repair(Id.LIBCUDA_LINK_DIFFERS, found, f"a link to {to}", action, LIBRARIES)
        yield unless_root(spec, differs)


# -- what the loader finds


def _cache(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge the linker's cache: what is in it is there, and the driver's library is in it."""
    cache = known(record.libcuda.cache)
    wrong = [f"{entry.path} is not there" for entry in cache if entry.real is None]
    for name in (SONAME, ML):
        real = link(record, path(record, name)).real
        if real is not None and (name, real) not in [(entry.name, entry.real) for entry in cache]:
            wrong.append(f"{path(record, name)} is not in it")
    if wrong:
        found, id_ = f"the linker's cache is stale: {some(wrong, 3)}", Id.LIBCUDA_CACHE_STALE
        stale = repair(id_, found, "what is on the disk", "run ldconfig", LIBRARIES)
        yield unless_root(spec, stale)


def _another(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Find a library that programs load in the driver's place: the first in the cache.

    A driver that is somebody else's may have its library anywhere (containers mount it); one of
    our links is judged as a link, and what comes behind the driver's library nobody loads.
    """
    first, libdir = _first(record), record.system.libdir
    if first is None or _is_drivers(record, first.real):
        return
    folder = dirname(first.path)
    mounted = spec.driver.source == "present" and _version_of(first.real) == record.driver.loaded
    # The cache may name the folder without /usr.
    if mounted or folder in (libdir, libdir.removeprefix("/usr")):
        return
    action = "left alone, since somebody put it there: remove it or the line in /etc/ld.so.conf.d"
    action += " that names its folder, then run ldconfig"
    command = f"grep -rn {folder} /etc/ld.so.conf /etc/ld.so.conf.d; dpkg -S {first.path}"
    found, expected = f"programs load {first.path}", f"the driver's {path(record, SONAME)}"
    packages = ("cuda-compat-*", *LIBRARIES)
    yield stop(Id.LIBCUDA_ANOTHER, found, expected, action, command, packages)


def _loader_paths(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Find folders of a toolkit's stubs or compat libraries that the loader searches."""
    del spec
    for row in known(record.libcuda.loader_paths):
        file, _, folder = row.partition(": ")
        found = f"{file} has the loader search {folder}"
        action = "left alone, since the file is not ours: remove its package, or that line and then"
        action, expected = f"{action} run ldconfig; see whose it is", "no stubs or compat libraries"
        packages = ("cuda-compat-*",)
        yield report(Id.LIBCUDA_ANOTHER, found, expected, action, f"dpkg -S {file}", packages)


def _unproven(spec: HostSpec, record: Record) -> Iterator[Finding]:
    unproven = outdated(record.libcuda.proof, state(spec, record))
    no_compiler = spec.privilege == "none" and record.cuda.gcc is None  # and none is installed
    if unproven is None or no_compiler:
        return
    # While another module is loaded than the library is made for, nothing can be proven.
    entry = _first(record)
    version = _version_of(entry.real) if entry and _is_drivers(record, entry.real) else None
    effect: Effect = "repair" if version in (None, record.driver.loaded) else "restart"
    found = f"not verified that programs load libcuda: {unproven}"
    expected = "two programs compiled and run with what is installed now"
    yield repair(Id.LIBCUDA_UNPROVEN, found, expected, "compile and run them", effect=effect)


def state(spec: HostSpec, record: Record) -> dict[str, object]:
    """Return all that the proof depends on: library, links, cache, compiler."""
    dev = link(record, path(record, DEV))
    cache = [f"{each.path} {each.real}" for each in if_known(record.libcuda.cache, ())]
    return {
        "the linker's cache": cache,
        DEV: [dev.kind, dev.target, dev.real],
        "gcc": str(record.cuda.gcc),
        "driver_source": spec.driver.source,
        "rehearsal": spec.rehearsal,
        "what is compiled for it": proofs.digest("libcuda"),
    }


judge = Rules(*where(of_gpus, _links, _cache, _loader_paths, _another, _unproven))
