"""Is the launcher of training runs there, and can a run outlive a login? Which runs are on?"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

from pyinfra_gpu.drift import layout
from pyinfra_gpu.drift.finding import Finding, Id, Stage
from pyinfra_gpu.drift.launcher_files import declared
from pyinfra_gpu.drift.put_off import told
from pyinfra_gpu.facts.fields import Unknown

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Entry, Record
    from pyinfra_gpu.spec import HostSpec

STAGE = Stage.TRAINING
FILES = (Id.TRAINING_LAUNCHER_MISSING, Id.TRAINING_LAUNCHER_DIFFERS)


def needed(spec: HostSpec, record: Record) -> tuple[object, ...]:
    """Return the facts that this part of the stage cannot do without."""
    paths = spec.paths
    if spec.training is None:
        return ()
    files = (paths.train, paths.train_site, paths.train_unit, paths.train_unit_again)
    return (layout.owner(spec, record), *(record.layout.entry(path) for path in files))


def summary(spec: HostSpec, record: Record) -> str:
    """Say that it is there, where nothing differs."""
    del record
    return "launcher as declared" if spec.training is not None else ""


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return in what the launcher is not as declared, and, as a note, the runs that are on."""
    if spec.training is None:
        return []
    return [*_files(spec, record), *_linger(spec, record), *_runs(record)]


def wrong(spec: HostSpec, record: Record) -> list[str]:
    """Return the paths of the files that are not as declared."""
    assert spec.training is not None  # noqa: S101 - see `judge`
    files = declared(spec, spec.training)
    return [
        path
        for path, (content, mode) in files.items()
        if _differs(spec, record.layout.entry(path), content, mode)
    ]


def _differs(spec: HostSpec, entry: Entry | Unknown, content: bytes, mode: str) -> bool:
    if isinstance(entry, Unknown):
        return False  # not known to be wrong; see `needed`
    roots = spec.privilege != "sudo" or entry.owner == layout.ROOT
    same = entry.sha256 == _digest(content) and entry.mode == mode
    return entry.kind != "file" or not same or not roots


@lru_cache(maxsize=16)  # the program is the same for every host
def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _files(spec: HostSpec, record: Record) -> list[Finding]:
    paths = wrong(spec, record)
    if not paths:
        return []
    names = ", ".join(path.removeprefix(f"{spec.paths.prefix}/") for path in paths)
    program = record.layout.entry(spec.paths.train)
    missing = not isinstance(program, Unknown) and program.kind == "absent"
    return [
        Finding(
            id=Id.TRAINING_LAUNCHER_MISSING if missing else Id.TRAINING_LAUNCHER_DIFFERS,
            found="no launcher" if missing else f"{names} differs",
            expected=f"{spec.paths.train} and what it reads, as declared",
            effect="repair",
            action="launcher",
        )
    ]


def _linger(spec: HostSpec, record: Record) -> list[Finding]:
    """Without root nobody is asked: the launcher does it, or says who can."""
    if record.launcher.linger is not False or spec.privilege != "sudo":
        return []
    if record.system.init != "systemd":
        return []
    owner = layout.owner_name(spec, record)
    return [
        Finding(
            id=Id.TRAINING_LINGER_OFF,
            found=f"the user manager of {owner} ends with the last login",
            expected="linger, so that a run outlives it",
            effect="repair",
            action=f"linger for {owner}",
        )
    ]


def _runs(record: Record) -> list[Finding]:
    runs = on(record)
    if not runs:
        return []
    return [
        Finding(
            id=Id.TRAINING_RUN_ON,
            found=f"{told(runs)} {'is' if len(runs) == 1 else 'are'} on",
            expected="to go on",
            effect="note",
            action="nothing that it uses is changed meanwhile",
        )
    ]


def on(record: Record) -> tuple[str, ...]:
    """Return the runs that are on or wait for their GPUs."""
    runs = record.launcher.runs
    return () if isinstance(runs, Unknown) else runs
