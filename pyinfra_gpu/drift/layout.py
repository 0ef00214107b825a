"""Are our directories there, the owner's, and open to be read? Judged, never touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyinfra_gpu.drift.finding import Finding, Id, Stage, stop
from pyinfra_gpu.facts.fields import Unknown

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Entry, Record
    from pyinfra_gpu.spec import HostSpec

STAGE = Stage.LAYOUT

IDS = Id.of(STAGE)
"""What `layout.directories` repairs."""
MODE = "0755"


def ours(spec: HostSpec) -> tuple[str, ...]:
    """Return the directories this project keeps, parents first."""
    paths = spec.paths
    proofs = (paths.proofs,) if spec.accelerator == "nvidia" else ()
    return (
        paths.prefix,
        paths.tools,
        paths.cache,
        paths.bin,
        paths.env_dir,
        paths.training_parent,
        paths.smoke,
        *proofs,
    )


def owner(spec: HostSpec, record: Record) -> str | Unknown | None:
    """Return whose our files have to be; None without root, where nobody's could be given away."""
    return (spec.owner or record.system.user) if spec.privilege == "sudo" else None


def owner_name(spec: HostSpec, record: Record) -> str:
    """Return the user who owns the tree under ``prefix``: as declared, else the login user."""
    return spec.owner or str(record.system.user)


def needed(spec: HostSpec, record: Record) -> tuple[object, ...]:
    """Return the facts that this stage cannot do without."""
    return (owner(spec, record), *(record.layout.entry(path) for path in ours(spec)))


def summary(spec: HostSpec, record: Record) -> str:
    """Say what was found where nothing differs."""
    del spec, record
    return "as declared"


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return in what the directories are not as declared, the worst first.

    Something that is not a directory at one of these paths is somebody's: the run stops there.
    """
    blocked = _which(spec, record, lambda entry: entry.kind not in ("dir", "absent"))
    if blocked:
        return [_blocked(record, path) for path in blocked]
    missing = missing_paths(spec, record)
    mode = _which(spec, record, lambda entry: entry.kind == "dir" and entry.mode != MODE)
    return [
        *(_missing(spec, missing) if missing else ()),
        *(_owner(spec, record) if foreign_paths(spec, record) else ()),
        *(_mode(record, mode) if mode else ()),
    ]


def missing_paths(spec: HostSpec, record: Record) -> list[str]:
    """Return the directories that are not there."""
    return _which(spec, record, lambda entry: entry.kind == "absent")


def foreign_paths(spec: HostSpec, record: Record) -> list[str]:
    """Return the directories that belong to somebody else; without root there is none."""
    owner = owner_name(spec, record)
    if spec.privilege != "sudo":
        return []
    return _which(spec, record, lambda entry: entry.kind == "dir" and entry.owner != owner)


def wrong_paths(spec: HostSpec, record: Record) -> list[str]:
    """Return the directories that are not as declared in any way, parents first."""
    wrong = {*missing_paths(spec, record), *foreign_paths(spec, record)}
    wrong |= {*_which(spec, record, lambda entry: entry.mode != MODE)}
    return [path for path in ours(spec) if path in wrong]


def _which(spec: HostSpec, record: Record, asked: Callable[[Entry], bool]) -> list[str]:
    entries = {path: record.layout.entry(path) for path in ours(spec)}
    return [
        path for path, entry in entries.items() if not isinstance(entry, Unknown) and asked(entry)
    ]


def _kind(record: Record, path: str) -> str:
    entry = record.layout.entry(path)
    return "unreadable" if isinstance(entry, Unknown) else entry.kind


def _blocked(record: Record, path: str) -> Finding:
    return stop(
        Id.LAYOUT_NOT_A_DIRECTORY,
        found=f"{path} is a {_kind(record, path)}",
        expected="a directory",
        action="move it away, or choose another `prefix`",
    )


def _missing(spec: HostSpec, paths: list[str]) -> list[Finding]:
    every = len(paths) == len(ours(spec))
    count = f"{len(paths)} director{'y' if len(paths) == 1 else 'ies'}"
    return [
        Finding(
            id=Id.LAYOUT_DIRECTORY_MISSING,
            found="no directories yet" if every else f"{_listed(paths)} missing",
            expected=f"our directories below {spec.paths.prefix}",
            effect="repair",
            action=f"make {count}",
        )
    ]


def _owner(spec: HostSpec, record: Record) -> list[Finding]:
    paths, owner = foreign_paths(spec, record), owner_name(spec, record)
    entry = record.layout.entry(paths[0])
    who = "somebody else" if isinstance(entry, Unknown) else entry.owner
    return [
        Finding(
            id=Id.LAYOUT_OWNER_DIFFERS,
            found=f"{_listed(paths)} belongs to {who}",
            expected=f"{owner} to own it",
            effect="repair",
            action=f"give what is in there to {owner}",
        )
    ]


def _mode(record: Record, paths: list[str]) -> list[Finding]:
    entry = record.layout.entry(paths[0])
    mode = "unknown" if isinstance(entry, Unknown) else entry.mode
    return [
        Finding(
            id=Id.LAYOUT_MODE_DIFFERS,
            found=f"{_listed(paths)} has mode {mode}",
            expected=f"mode {MODE}",
            effect="repair",
            action=f"set mode {MODE}",
        )
    ]


def _listed(paths: list[str]) -> str:
    more = f" and {len(paths) - 2} more" if len(paths) > 2 else ""
    return f"{', '.join(paths[:2])}{more}"
