"""In what the driver's library is not as programs need to find it.

Programs find it in two ways. At run time the linker's cache says where libcuda.so.1 is; at link
time `-lcuda` takes the libcuda.so of a folder that the compiler searches. Both must end at the file
that the driver's package brought, through libcuda.so.1: a link to libcuda.so.580.95.05 dangles
after the next driver update. The stubs of a CUDA toolkit are for linking only (a program that loads
them gets error 34), its compat libraries for other GPUs and older drivers (error 804).
"""

from __future__ import annotations

from dataclasses import replace
from posixpath import basename, dirname
from typing import TYPE_CHECKING, Literal

from pyinfra_gpu.drift import proof
from pyinfra_gpu.drift.cuda import home
from pyinfra_gpu.drift.finding import Finding, Id, Stage
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
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import CacheEntry, Link
from pyinfra_gpu.on_host import proofs
from pyinfra_gpu.packages import manager_for
from pyinfra_gpu.packages.names import LIBRARIES

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = Stage.LIBCUDA

PROOF = (Id.LIBCUDA_UNPROVEN,)
"""What `libcuda.proven` repairs."""

LINKS = tuple(each for each in Id.of(STAGE) if each is not Id.LIBCUDA_UNPROVEN)
"""What `libcuda.linked` repairs."""


Trouble = Literal[
    "missing", "dangling", "into-stubs", "into-compat", "to-a-version", "not-driver-owned"
]
_TROUBLES: dict[Trouble, Id] = {
    "missing": Id.LIBCUDA_MISSING,
    "dangling": Id.LIBCUDA_DANGLING,
    "into-stubs": Id.LIBCUDA_INTO_STUBS,
    "into-compat": Id.LIBCUDA_INTO_COMPAT,
    "to-a-version": Id.LIBCUDA_TO_A_VERSION,
    "not-driver-owned": Id.LIBCUDA_NOT_DRIVER_OWNED,
}


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return in what libcuda is not as declared; [] on cpu stacks.

    + spec: what is declared
    + record: what the host looks like; what it would not tell is no deviation (see `needed`)
    """
    if spec.accelerator != "nvidia":
        return []
    found = [*_loader_paths(record), *_foreign_first(spec, record), *_seconds(record)]
    found += _toolkit_link(spec, record)
    if has_driver(record):
        found = [*_links(record), *_cache(record), *found]
    elif spec.driver.source == "present" and not _is_loaded_ones(record, first(record)):
        found = [_no_driver(), *found]
    if spec.privilege == "none":
        found = [_left_alone(each) for each in found]
    return [*found, *_unproven(spec, record)]


def needed(spec: HostSpec, record: Record) -> tuple[object, ...]:
    """Return the facts that this stage cannot do without; it refuses where one is `Unknown`."""
    if spec.accelerator != "nvidia":
        return ()
    libcuda = record.libcuda
    return (libcuda.cache, libcuda.links, libcuda.files, libcuda.loader_paths)


def summary(spec: HostSpec, record: Record) -> str:
    """Name the library that programs get, where nothing differs."""
    if spec.accelerator != "nvidia":
        return ""
    entry = first(record)
    return entry.real or "" if entry else "no driver's library yet"


def toolkit_link(spec: HostSpec) -> str:
    """Return the path of the link inside the declared toolkit."""
    return f"{home(spec)}/lib64/{DEV}"


def troubles(record: Record) -> dict[str, Trouble]:
    """Return which of the driver's links are wrong: path -> what is wrong with it."""
    links = record.libcuda.links
    if isinstance(links, Unknown) or isinstance(record.libcuda.files, Unknown):
        return {}
    found = {}
    for name in (SONAME, DEV, ML):
        there = links.get(path(record, name))
        trouble = None if there is None else _trouble(record, name, there)
        if trouble is not None:
            found[path(record, name)] = trouble
    return found


def _links(record: Record) -> list[Finding]:
    return [_link_deviation(record, *each) for each in troubles(record).items()]


def _trouble(record: Record, name: str, there: Link) -> Trouble | None:
    """Return what is wrong with one link, the worst first; None where it is as it should be."""
    if there.kind == "absent":
        return "missing"
    if there.real is None:
        return "dangling" if there.kind == "link" else "not-driver-owned"
    if place := _toolkit_place(there.real):
        return place
    if there.kind != "link":
        return "not-driver-owned"  # a copy: the next update leaves it behind
    if name == DEV and version_of(there.target) is not None:
        return "to-a-version"
    return None if is_drivers(record, there.real) else "not-driver-owned"


def _toolkit_place(file: str) -> Literal["into-stubs", "into-compat"] | None:
    folders = dirname(file).split("/")
    if "stubs" in folders:
        return "into-stubs"
    return "into-compat" if "compat" in folders else None


def _link_deviation(record: Record, where: str, trouble: Trouble) -> Finding:
    there, name = link(record, where), basename(where)
    leads = f"{where} leads to {there.real or there.target}"
    found = {
        "missing": f"there is no {where}",
        "dangling": f"{where} leads to {there.target}, which is not there, or empty",
        "into-stubs": f"{leads}, a stub that is for linking only",
        "into-compat": f"{leads}, of a CUDA compatibility package",
        "to-a-version": f"{where} leads to {there.target} and not to {SONAME}",
        "not-driver-owned": leads if there.kind == "link" else f"{where} is a {there.kind}",
    }[trouble]
    expected = f"a link to {SONAME}" if name == DEV else f"a link to the driver's {name[:-2]}.*"
    return Finding(
        id=_TROUBLES[trouble],
        found=found,
        expected=expected,
        effect="repair",
        action="install its package anew, or link it where it belongs to none",
        packages=LIBRARIES,
    )


def _cache(record: Record) -> list[Finding]:
    cache = record.libcuda.cache
    if isinstance(cache, Unknown):
        return []
    found = [
        _of_cache(Id.LIBCUDA_CACHE_DANGLING, f"{entry.path} is not there")
        for entry in cache
        if entry.real is None
    ]
    for name in (SONAME, ML):
        there = link(record, path(record, name))
        cached = any(entry.name == name and entry.real == there.real for entry in cache)
        if there.real is not None and not cached:
            found.append(_of_cache(Id.LIBCUDA_NOT_IN_CACHE, f"{path(record, name)} is not in it"))
    return found


def _of_cache(id_: Id, found: str) -> Finding:
    return Finding(
        id=id_,
        found=f"the linker's cache is stale: {found}",
        expected="what is on the disk",
        effect="repair",
        action="run ldconfig",
        packages=LIBRARIES,
    )


def first(record: Record, name: str = SONAME) -> CacheEntry | None:
    """Return the library that programs get, by the linker's cache; None where there is none."""
    cache = record.libcuda.cache
    if isinstance(cache, Unknown):
        return None
    return next((entry for entry in cache if entry.name == name and entry.real), None)


def _is_loaded_ones(record: Record, entry: CacheEntry | None) -> bool:
    """Tell whether a library has the loaded module's version, wherever it is."""
    version = version_of(entry.real) if entry else None
    return version is not None and version == record.driver.loaded


def _foreign_first(spec: HostSpec, record: Record) -> list[Finding]:
    """Programs load the first libcuda.so.1 in the cache. One we did not bring is left alone.

    A driver that is somebody else's may have its library anywhere (containers mount it).
    """
    entry = first(record)
    if entry is None or is_drivers(record, entry.real):
        return []
    if spec.driver.source == "present" and _is_loaded_ones(record, entry):
        return []
    if _in_libdir(record, entry):  # one of our links is judged as a link
        return []
    return [
        Finding(
            id=Id.LIBCUDA_FOREIGN_FIRST,
            found=f"programs load {entry.path}",
            expected=f"the driver's {path(record, SONAME)}",
            effect="report",
            stops=True,
            action="left alone, since somebody put it there: remove it or the line in"
            " /etc/ld.so.conf.d that names its folder, then run ldconfig",
            command=f"grep -rn {dirname(entry.path)} /etc/ld.so.conf /etc/ld.so.conf.d;"
            f" {manager_for(record.system.os_id).owner_by_hand(entry.path)}",
            packages=("cuda-compat-*", *LIBRARIES),
        )
    ]


def _in_libdir(record: Record, entry: CacheEntry) -> bool:
    """Tell whether it is in the driver's folder, which the cache may name without /usr."""
    libdir = record.libcuda.libdir
    return dirname(entry.path) in (libdir, libdir.removeprefix("/usr"))


def _seconds(record: Record) -> list[Finding]:
    """Find further libcuda.so.1 in the cache, which no program gets as long as they are behind.

    Where its folder is set in a file, that is told of already; see `_loader_paths`.
    """
    cache, rows = record.libcuda.cache, record.libcuda.loader_paths
    if isinstance(cache, Unknown):
        return []
    told = [] if isinstance(rows, Unknown) else [row.partition(": ")[2] for row in rows]
    used = first(record)
    if used is None or not (is_drivers(record, used.real) or _in_libdir(record, used)):
        return []
    return [
        Finding(
            id=Id.LIBCUDA_SECOND,
            found=f"a second {SONAME} in the linker's cache: {entry.path}, which is {entry.real}",
            expected=f"the driver's {path(record, SONAME)} alone",
            effect="note",
            action="left alone, since programs get the driver's: remove it, then run ldconfig",
            packages=("cuda-compat-*", *LIBRARIES),
        )
        for entry in cache
        if entry.name == SONAME and entry.real and not _in_libdir(record, entry)
        if dirname(entry.path) not in told
    ]


def _loader_paths(record: Record) -> list[Finding]:
    rows = record.libcuda.loader_paths
    if isinstance(rows, Unknown):
        return []
    return [_loader_path(record, *row.partition(": ")[::2]) for row in rows]


def _loader_path(record: Record, file: str, folder: str) -> Finding:
    kind = "stubs" if "stubs" in folder else "compat"
    packages = record.nvidia.packages
    names = [] if isinstance(packages, Unknown) else [each.name for each in packages]
    compat = [name for name in names if name.startswith("cuda-compat")]
    manager = manager_for(record.system.os_id)
    whose = manager.owner_by_hand(file)
    remedy = f"remove that line, then run ldconfig; see whose it is: {whose}"
    if kind == "compat" and compat:
        remedy = manager.remove_by_hand(compat)
    words, _, command = remedy.rpartition(": ")
    return Finding(
        id=Id.LIBCUDA_LOADER_PATH_STUBS if kind == "stubs" else Id.LIBCUDA_LOADER_PATH_COMPAT,
        found=f"{file} has the loader search {folder}",
        expected=f"no {kind} libraries on the loader's path",
        effect="report",
        action="left alone, since the file is not ours" + (f": {words}" if words else ""),
        command=command,
        packages=("cuda-compat-*",),
    )


def _toolkit_link(spec: HostSpec, record: Record) -> list[Finding]:
    """Judge the link inside the toolkit, which is there only if data asks for it."""
    if spec.cuda.release is None or isinstance(record.libcuda.links, Unknown):
        return []
    where, wanted = toolkit_link(spec), path(record, SONAME)
    there = link(record, where)
    if not spec.libcuda.toolkit_link:
        return _harmful(where, there)
    if there.kind == "link" and there.target == wanted:
        return []
    absent = there.kind == "absent"
    return [
        Finding(
            id=Id.LIBCUDA_TOOLKIT_LINK_MISSING if absent else Id.LIBCUDA_TOOLKIT_LINK_WRONG,
            found=f"there is no {where}"
            if absent
            else f"{where} leads to {there.target}"
            if there.kind == "link"
            else f"{where} is a {there.kind}",
            expected=f"a link to {wanted}",
            effect="repair",
            action="link it",
            packages=("cuda-cudart-*",),
        )
    ]


def _harmful(where: str, there: Link) -> list[Finding]:
    """A link nobody declared is somebody's; where it leads programs astray, it is told."""
    if there.kind != "link":
        return []
    trouble = "dangling" if there.real is None else _toolkit_place(there.real)
    if trouble is None:
        return []
    return [
        Finding(
            id=_TROUBLES[trouble],
            found=f"{where} leads to {there.target}",
            expected="nothing there, or libcuda_toolkit_link = True",
            effect="report",
            action="left alone, since it was made by hand and is not declared",
            command=f"sudo rm {where} && sudo ldconfig",
        )
    ]


def _no_driver() -> Finding:
    return Finding(
        id=Id.LIBCUDA_MISSING,
        found="there is no libcuda of a driver",
        expected="the library of the driver that is declared to be present",
        effect="report",
        stops=True,
        action="left alone with driver_source = 'present': install the driver's libraries, or"
        " declare driver_source = 'nvidia'",
    )


def _left_alone(finding: Finding) -> Finding:
    if finding.effect in ("report", "note"):
        return finding
    action = f"left alone with privilege = 'none'; as root one would {finding.action}"
    return replace(finding, effect="report", action=action)


def _unproven(spec: HostSpec, record: Record) -> list[Finding]:
    now = state(spec, record)
    unproven = proof.proven_state(record.libcuda.proof, proof.fingerprint(now), now)
    no_compiler = spec.privilege == "none" and record.cuda.gcc is None  # and none is installed
    if unproven is None or no_compiler:
        return []
    # While another module is loaded than the library is made for, nothing can be proven.
    entry, loaded = first(record), record.driver.loaded
    version = version_of(entry.real) if entry and is_drivers(record, entry.real) else None
    waits = version is not None and version != loaded
    return [
        Finding(
            id=Id.LIBCUDA_UNPROVEN,
            found=f"that programs load the driver's library: {unproven}",
            expected="two programs compiled and run with what is installed now",
            effect="restart" if waits else "repair",
            action="compile and run them",
        )
    ]


def state(spec: HostSpec, record: Record) -> dict[str, object]:
    """Return all that the proof depends on: library, links, cache, compiler."""
    cache = record.libcuda.cache
    dev = link(record, path(record, DEV))
    return {
        "the linker's cache": ""
        if isinstance(cache, Unknown)
        else [f"{each.path} {each.real}" for each in cache],
        DEV: [dev.kind, dev.target, dev.real],
        "gcc": str(record.cuda.gcc),
        "driver_source": spec.driver.source,
        "rehearsal": spec.rehearsal,
        "what is compiled for it": proofs.digest("libcuda"),
    }
