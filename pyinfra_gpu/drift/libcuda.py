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

from pyinfra_gpu.drift.cuda import home
from pyinfra_gpu.drift.driver_inventory import of_gpus
from pyinfra_gpu.drift.finding import Effect, Finding, Id, Stage, repair, report, stop, unless_root
from pyinfra_gpu.drift.proof import outdated
from pyinfra_gpu.drift.rules import Rules, if_known, known, where
from pyinfra_gpu.facts.record import CacheEntry, Link, Record
from pyinfra_gpu.on_host import proofs
from pyinfra_gpu.packages.names import LIBRARIES, matching
from pyinfra_gpu.spec import HostSpec

STAGE = Stage.LIBCUDA
SONAME, DEV, ML = "libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"
_COMPAT = ("cuda-compat-*", *LIBRARIES)


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
    """Tell whether a file is where the driver's packages put it, and named as they name it.

    Some distributions' own packages keep it one folder deeper, below nvidia/, and link to it.
    """
    libdir, name = record.system.libdir, r"lib(cuda|nvidia-ml)\.so\.\d{3}(\.\d+)+"
    place = rf"{re.escape(libdir)}/(nvidia/([^/]+/)?)?"
    return bool(libdir) and re.fullmatch(f"{place}{name}", file or "") is not None


def has_files(record: Record) -> bool:
    """Tell whether there is a libcuda file of the driver's."""
    files = (*if_known(record.libcuda.files, ()), link(record, path(record, SONAME)).real)
    return any(_is_drivers(record, each) for each in files)


def library_packages(record: Record) -> list[str]:
    """Return the installed packages that bring the driver's libraries, the most telling first."""
    return matching((each.name for each in if_known(record.nvidia.packages, ())), LIBRARIES)


def _has_driver(record: Record) -> bool:
    return has_files(record) or bool(library_packages(record))


def _version_of(file: str | None) -> str | None:
    """Return the version in a library's file name, "580.95.05" of libcuda.so.580.95.05."""
    match = re.search(r"\.so\.(\d+(?:\.\d+)+)$", file or "")
    return match[1] if match else None


def _first(record: Record) -> CacheEntry | None:
    """Return the libcuda.so.1 that programs get by the linker's cache, if any."""
    cache = if_known(record.libcuda.cache, ())
    return next((entry for entry in cache if entry.name == SONAME and entry.real), None)


def _is_loaded_ones(record: Record, entry: CacheEntry | None) -> bool:
    """Tell whether a library has the loaded module's version, wherever it is."""
    version = _version_of(entry.real) if entry else None
    return version is not None and version == record.driver.loaded


# -- links


def wrong_links(spec: HostSpec, record: Record) -> dict[str, str]:
    """Return which links do not lead where they should: path -> what is wrong, a clause.

    The link inside the toolkit is one of them where it is declared.
    """
    paths = [path(record, name) for name in (SONAME, DEV, ML)] if _has_driver(record) else []
    looked, inside = if_known(record.libcuda.links, {}), toolkit_link(spec)
    found = {each: _wrong(record, each, looked[each]) for each in paths if each in looked}
    there = link(record, inside)
    if spec.libcuda.toolkit_link and there.target != path(record, SONAME):
        found[inside] = _at(inside, there)
    return {where: said for where, said in found.items() if said}


def _at(where: str, there: Link) -> str:
    if there.kind == "absent":
        return f"there is no {where}"
    how = f"points to {there.target}" if there.kind == "link" else f"is a {there.kind}"
    return f"{where} {how}"


def _wrong(record: Record, where: str, there: Link) -> str | None:
    """Say what is wrong with one link, the worst first; None where it is as it should be."""
    if there.real is None:
        dangles = ", which does not exist or is empty" if there.kind == "link" else ""
        return f"{_at(where, there)}{dangles}"
    if astray := _astray(there.real):
        return f"{where} points to {there.real}, {astray}"
    if there.kind != "link":  # a copy: the next update leaves it behind
        return _at(where, there)
    if basename(where) == DEV and _version_of(there.target) is not None:
        return f"{where} points to {there.target} and not to {SONAME}"
    return None if _is_drivers(record, there.real) else f"{where} points to {there.real}"


def _astray(file: str) -> str | None:
    folders = dirname(file).split("/")
    if "stubs" in folders:
        return "a stub that is for linking only"
    return "of a CUDA compatibility package" if "compat" in folders else None


def _links(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge the links; one in the toolkit that is not declared is somebody's, and left alone."""
    for each in (record.libcuda.cache, record.libcuda.links, record.libcuda.files):
        known(each)
    id_, inside = Id.LIBCUDA_LINK_DIFFERS, toolkit_link(spec)
    somebodys = spec.driver.source == "present"
    if somebodys and not _has_driver(record) and not _is_loaded_ones(record, _first(record)):
        action = "left alone with driver_source = 'present': install the driver's libraries, or"
        action += " declare driver_source = 'nvidia'"
        expected = "the library of the driver that is declared to be present"
        yield stop(id_, "there is no libcuda of a driver", expected, action)
    for where_, found in wrong_links(spec, record).items():
        to = f"the driver's {basename(where_)[:-2]}.*" if where_.endswith(".1") else SONAME
        expected = f"a link to {path(record, SONAME) if where_ == inside else to}"
        action = "reinstall its package, or link it where it belongs to none"
        yield unless_root(spec, repair(id_, found, expected, action, LIBRARIES))
    there = link(record, inside)
    astray = there.kind == "link" and (there.real is None or _astray(there.real))
    if astray and not spec.libcuda.toolkit_link and spec.cuda.release is not None:
        found, expected = _at(inside, there), "nothing there, or libcuda_toolkit_link = True"
        action = "left alone, since it was made by hand and is not declared"
        yield report(id_, found, expected, action, f"sudo rm {inside} && sudo ldconfig")


# -- what the loader finds


def _cache(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge the linker's cache: what is in it is there, and the driver's library is in it."""
    if not _has_driver(record):
        return
    cache = known(record.libcuda.cache)
    wrong = [f"{entry.path} is not there" for entry in cache if entry.real is None]
    for name in (SONAME, ML):
        real = link(record, path(record, name)).real
        if real is not None and (name, real) not in [(entry.name, entry.real) for entry in cache]:
            wrong.append(f"{path(record, name)} is not in it")
    for each in wrong:
        found, id_ = f"the linker's cache is stale: {each}", Id.LIBCUDA_CACHE_STALE
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
    if folder in (libdir, libdir.removeprefix("/usr")):  # the cache may name it without /usr
        return
    if spec.driver.source == "present" and _is_loaded_ones(record, first):
        return
    action = "left alone, since somebody put it there: remove it or the line in /etc/ld.so.conf.d"
    action += " that names its folder, then run ldconfig"
    command = f"grep -rn {folder} /etc/ld.so.conf /etc/ld.so.conf.d; dpkg -S {first.path}"
    found, expected = f"programs load {first.path}", f"the driver's {path(record, SONAME)}"
    yield stop(Id.LIBCUDA_ANOTHER, found, expected, action, command, _COMPAT)


def _loader_paths(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Find folders of a toolkit's stubs or compat libraries that the loader searches."""
    names = [each.name for each in if_known(record.nvidia.packages, ())]
    compat = [name for name in names if name.startswith("cuda-compat")]
    for row in known(record.libcuda.loader_paths):
        file, _, folder = row.partition(": ")
        kind = "stubs" if "stubs" in folder else "compat"
        action = "left alone, since the file is not ours"
        if kind == "compat" and compat:
            command = f"sudo apt-get remove {' '.join(compat)}"
        else:
            action += ": remove that line, then run ldconfig; see whose it is"
            command = f"dpkg -S {file}"
        found, expected = f"{file} has the loader search {folder}", f"no {kind} libraries there"
        yield report(Id.LIBCUDA_ANOTHER, found, expected, action, command, ("cuda-compat-*",))


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
