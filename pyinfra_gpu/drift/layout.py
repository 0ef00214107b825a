"""Are our directories there, root's and the owner's, and open to be read? Judged, never touched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyinfra_gpu.drift.finding import Finding, Id, Stage, repair, report, stop
from pyinfra_gpu.drift.rules import Rules, if_known, known
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.text import some

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Entry, Record
    from pyinfra_gpu.spec import HostSpec

STAGE = Stage.LAYOUT

IDS = Id.of(STAGE)
"""What `layout.directories` repairs."""
MODE = "0755"
LOCK_MODE = "0640"
"""The group is the owner's: whoever can read a file can lock it, and stall a run."""
ROOT = "root"


def roots(spec: HostSpec) -> tuple[str, ...]:
    """Return the directories in which nobody but root can put anything, the prefix first.

    What root runs, writes or believes is in them: the installer, our programs, stamps, proofs.
    """
    paths = spec.paths
    proofs = (paths.proofs,) if spec.accelerator == "nvidia" else ()
    train = (paths.train_dir,) if spec.training is not None else ()
    return (paths.prefix, paths.tools, paths.bin, paths.env_dir, paths.smoke, *train, *proofs)


def owners(spec: HostSpec) -> tuple[str, ...]:
    """Return the directories that are the owner's; root never opens anything below them.

    The virtual environment is the owner's as well, and made by the stage that fills it.
    """
    build = (spec.paths.build,) if spec.pytorch.source != "wheel" else ()
    return (spec.paths.cache, spec.paths.training_parent, spec.paths.state, *build)


def ours(spec: HostSpec) -> tuple[str, ...]:
    """Return the directories this project keeps, parents first."""
    return (*roots(spec), *owners(spec))


def owner(spec: HostSpec, record: Record) -> str | Unknown | None:
    """Return who runs what is deployed; None without root, where nobody's could be given away."""
    return (spec.owner or record.system.user) if spec.privilege == "sudo" else None


def owner_name(spec: HostSpec, record: Record) -> str:
    """Return the user who runs what is deployed: as declared, else the login user."""
    return spec.owner or str(record.system.user)


def summary(spec: HostSpec, record: Record) -> str:
    """Say what was found where nothing differs."""
    del spec, record
    return "as declared"


def shut(spec: HostSpec, record: Record) -> bool:
    """Tell whether a directory of root's keeps the owner out, until its mode is repaired."""
    if spec.privilege != "sudo":
        return False
    entries = (record.layout.entry(path) for path in roots(spec))
    return any(
        not isinstance(each, Unknown) and each.kind == "dir" and not int(str(each.mode), 8) & 1
        for each in entries
    )


def _entries(spec: HostSpec, record: Record) -> dict[str, Entry]:
    """Return what stands at the path of each directory of ours, where that can be told."""
    entries = {path: record.layout.entry(path) for path in ours(spec)}
    return {path: each for path, each in entries.items() if not isinstance(each, Unknown)}


def _lock(spec: HostSpec, record: Record) -> Entry | None:
    """Return what stands at the lock's path, None where nobody has to care."""
    return (
        if_known(record.layout.entry(spec.paths.lock), None) if spec.privilege == "sudo" else None
    )


def _told(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Nothing is done in a place of which a part cannot be looked at."""
    known(owner(spec, record))
    for path in (*ours(spec), *((spec.paths.lock,) if spec.privilege == "sudo" else ())):
        known(record.layout.entry(path))
    yield from ()


def _in_the_way(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Something that is not a directory at one of these paths is somebody's: the run stops."""
    action = "move it away, or choose another `prefix`"
    for path, entry in _entries(spec, record).items():
        if entry.kind not in ("dir", "absent"):
            found = f"{path} is a {entry.kind}"
            yield stop(Id.LAYOUT_NOT_A_DIRECTORY, found, "a directory", action)


def _missing(spec: HostSpec, record: Record) -> Iterator[Finding]:
    paths = [path for path, entry in _entries(spec, record).items() if entry.kind == "absent"]
    lock, count = _lock(spec, record), len(paths)
    if lock and lock.kind == "absent" and spec.paths.prefix not in paths:
        paths.append(spec.paths.lock)
    if paths:
        yield repair(
            Id.LAYOUT_DIRECTORY_MISSING,
            "no directories yet" if len(paths) == len(ours(spec)) else f"{some(paths, 2)} missing",
            f"our directories below {spec.paths.prefix}",
            f"make {count} director{'y' if count == 1 else 'ies'}" if count else "make the lock",
        )


def _owners(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge whose the directories are; without root all of them are whose the login is."""
    if spec.privilege != "sudo":
        return
    entries, lock, theirs = _entries(spec, record), _lock(spec, record), owner_name(spec, record)
    wrong = [path for path in roots(spec) if path in entries and _of_another(entries[path], ROOT)]
    if lock and lock.kind != "absent" and (lock.kind != "file" or lock.owner != ROOT):
        wrong.append(spec.paths.lock)
    if wrong:
        yield repair(
            Id.LAYOUT_OWNER_DIFFERS,
            _belongs(record, wrong),
            "root to own it, since root writes there and believes what it finds",
            f"give {some(wrong, 2)} to root; root recreates what it reads or runs there",
        )
    paths = (*owners(spec), spec.paths.venv)
    if wrong := [path for path in paths if _of_another(record.layout.entry(path), theirs)]:
        action = f"set {some(wrong, 2)} aside, and create it for {theirs}"
        found = _belongs(record, wrong)
        yield repair(Id.LAYOUT_OWNER_DIFFERS, found, f"{theirs} to own it", action)


def _of_another(entry: Entry | Unknown, owner: str) -> bool:
    return not isinstance(entry, Unknown) and entry.kind == "dir" and entry.owner != owner


def _belongs(record: Record, paths: list[str]) -> str:
    whose = known(record.layout.entry(paths[0])).owner
    return f"{some(paths, 2)} {'belongs' if len(paths) == 1 else 'belong'} to {whose}"


def _modes(spec: HostSpec, record: Record) -> Iterator[Finding]:
    entries, lock = _entries(spec, record).items(), _lock(spec, record)
    wrong = {path: each for path, each in entries if each.kind == "dir" and each.mode != MODE}
    mode = MODE if wrong else LOCK_MODE
    if lock and lock.kind == "file" and lock.mode != LOCK_MODE:
        wrong[spec.paths.lock] = lock
    if wrong:
        found = f"{some([*wrong], 2)} has mode {next(iter(wrong.values())).mode}"
        yield repair(Id.LAYOUT_MODE_DIFFERS, found, f"mode {mode}", f"set mode {mode}")


def _open_to_all(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge who may exchange what the owner runs; a group may, where each user has one alone."""
    path = spec.paths.venv
    entry = record.layout.entry(path)
    if not isinstance(entry, Unknown) and entry.kind == "dir" and int(str(entry.mode), 8) & 0o002:
        yield report(
            Id.LAYOUT_OPEN_TO_ALL,
            f"{path} has mode {entry.mode}: every user can replace its content",
            f"{owner_name(spec, record)} alone to write there",
            "left alone, since what is in it is the owner's, and may be exchanged already",
            f"chmod o-w {path}",
        )


judge = Rules(_told, _in_the_way, _missing, _owners, _modes, _open_to_all)
