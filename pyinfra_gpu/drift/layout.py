"""Are our directories there, root's and the owner's, and open to be read? Judged, never touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyinfra_gpu.drift.finding import Finding, Id, Stage, stop
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


def needed(spec: HostSpec, record: Record) -> tuple[object, ...]:
    """Return the facts that this stage cannot do without."""
    paths = (*ours(spec), *((spec.paths.lock,) if spec.privilege == "sudo" else ()))
    return (owner(spec, record), *(record.layout.entry(path) for path in paths))


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
    return [
        *(_missing(spec, missing) if missing else ()),
        *_not_roots(spec, record),
        *_owner(spec, record),
        *_mode(spec, record),
        *_open_to_all(spec, record),
    ]


def missing_paths(spec: HostSpec, record: Record) -> list[str]:
    """Return what is not there: directories, and below a prefix that is there the lock."""
    missing = _which(spec, record, lambda entry: entry.kind == "absent")
    lock = _lock(spec, record)
    if lock and lock.kind == "absent" and spec.paths.prefix not in missing:
        missing.append(spec.paths.lock)
    return missing


def taken_over(spec: HostSpec, record: Record) -> list[str]:
    """Return what should be root's and belongs to somebody else; without root there is none."""
    if spec.privilege != "sudo":
        return []
    found = [path for path in roots(spec) if _belongs_to_another(record, path, ROOT)]
    lock = _lock(spec, record)
    if lock and lock.kind != "absent" and (lock.kind != "file" or lock.owner != ROOT):
        found.append(spec.paths.lock)
    return found


def of_others(spec: HostSpec, record: Record) -> list[str]:
    """Return what should be the owner's and is somebody else's; without root there is none."""
    if spec.privilege != "sudo":
        return []
    owner = owner_name(spec, record)
    paths = (*owners(spec), spec.paths.venv)
    return [path for path in paths if _belongs_to_another(record, path, owner)]


def wrong_modes(spec: HostSpec, record: Record) -> list[str]:
    """Return what has another mode than declared."""
    wrong = _which(spec, record, lambda entry: entry.kind == "dir" and entry.mode != MODE)
    lock = _lock(spec, record)
    if lock and lock.kind == "file" and lock.mode != LOCK_MODE:
        wrong.append(spec.paths.lock)
    return wrong


def shut(spec: HostSpec, record: Record) -> bool:
    """Tell whether a directory of root's keeps the owner out, until its mode is repaired."""
    if spec.privilege != "sudo":
        return False
    entries = (record.layout.entry(path) for path in roots(spec))
    return any(
        not isinstance(each, Unknown) and each.kind == "dir" and not int(str(each.mode), 8) & 1
        for each in entries
    )


def _lock(spec: HostSpec, record: Record) -> Entry | None:
    """Return what stands at the lock's path, None where nobody has to care."""
    entry = record.layout.entry(spec.paths.lock)
    return None if spec.privilege != "sudo" or isinstance(entry, Unknown) else entry


def _belongs_to_another(record: Record, path: str, owner: str) -> bool:
    entry = record.layout.entry(path)
    return not isinstance(entry, Unknown) and entry.kind == "dir" and entry.owner != owner


def _which(spec: HostSpec, record: Record, asked: Callable[[Entry], bool]) -> list[str]:
    entries = {path: record.layout.entry(path) for path in ours(spec)}
    return [
        path for path, entry in entries.items() if not isinstance(entry, Unknown) and asked(entry)
    ]


def _known(record: Record, path: str, what: str) -> str:
    entry = record.layout.entry(path)
    return "unknown" if isinstance(entry, Unknown) else str(getattr(entry, what))


def _blocked(record: Record, path: str) -> Finding:
    kind = _known(record, path, "kind")
    return stop(
        Id.LAYOUT_NOT_A_DIRECTORY,
        found=f"{path} is a {kind}",
        expected="a directory",
        action="move it away, or choose another `prefix`",
    )


def _missing(spec: HostSpec, paths: list[str]) -> list[Finding]:
    every = len(paths) == len(ours(spec))
    directories = [path for path in paths if path != spec.paths.lock]
    count = f"{len(directories)} director{'y' if len(directories) == 1 else 'ies'}"
    return [
        Finding(
            id=Id.LAYOUT_DIRECTORY_MISSING,
            found="no directories yet" if every else f"{some(paths, 2)} missing",
            expected=f"our directories below {spec.paths.prefix}",
            effect="repair",
            action=f"make {count}" if directories else "make the lock",
        )
    ]


def _not_roots(spec: HostSpec, record: Record) -> list[Finding]:
    paths = taken_over(spec, record)
    if not paths:
        return []
    return [
        Finding(
            id=Id.LAYOUT_NOT_ROOTS,
            found=f"{some(paths, 2)} {_belong(paths)} to {_known(record, paths[0], 'owner')}",
            expected="root to own it, since root writes there and believes what it finds",
            effect="repair",
            action=f"give {some(paths, 2)} to root; what root believes or runs of it is made anew",
        )
    ]


def _owner(spec: HostSpec, record: Record) -> list[Finding]:
    paths, owner = of_others(spec, record), owner_name(spec, record)
    if not paths:
        return []
    return [
        Finding(
            id=Id.LAYOUT_OWNER_DIFFERS,
            found=f"{some(paths, 2)} {_belong(paths)} to {_known(record, paths[0], 'owner')}",
            expected=f"{owner} to own it",
            effect="repair",
            action=f"set {some(paths, 2)} aside, and make it anew for {owner}",
        )
    ]


def _mode(spec: HostSpec, record: Record) -> list[Finding]:
    paths = wrong_modes(spec, record)
    if not paths:
        return []
    mode = LOCK_MODE if paths[0] == spec.paths.lock else MODE
    return [
        Finding(
            id=Id.LAYOUT_MODE_DIFFERS,
            found=f"{some(paths, 2)} has mode {_known(record, paths[0], 'mode')}",
            expected=f"mode {mode}",
            effect="repair",
            action=f"set mode {mode}",
        )
    ]


def _open_to_all(spec: HostSpec, record: Record) -> list[Finding]:
    """Judge who may exchange what the owner runs; a group may, where each user has one alone."""
    path = spec.paths.venv
    entry = record.layout.entry(path)
    if isinstance(entry, Unknown) or entry.kind != "dir" or not int(str(entry.mode), 8) & 0o002:
        return []
    return [
        Finding(
            id=Id.LAYOUT_OPEN_TO_ALL,
            found=f"{path} has mode {entry.mode}: every user can exchange what is in it",
            expected=f"{owner_name(spec, record)} alone to write there",
            effect="report",
            action="left alone, since what is in it is the owner's, and may be exchanged already",
            command=f"chmod o-w {path}",
        )
    ]


def _belong(paths: list[str]) -> str:
    return "belongs" if len(paths) == 1 else "belong"
