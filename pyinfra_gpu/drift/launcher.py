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
MANAGER = (Id.TRAINING_LINGER_OFF, Id.TRAINING_MANAGER_OFF, Id.TRAINING_MANAGER_MASKED)


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
    manager = _masked(spec, record) or _manager(spec, record)
    return [*_files(spec, record), *manager, *_runs(record)]


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
    program = record.layout.entry(spec.paths.train)
    missing = not isinstance(program, Unknown) and program.kind == "absent"
    return [
        Finding(
            id=Id.TRAINING_LAUNCHER_MISSING if missing else Id.TRAINING_LAUNCHER_DIFFERS,
            found="no launcher" if missing else f"{_parts(spec, paths)} not as declared",
            expected=f"{spec.paths.train} and what it reads, as declared",
            effect="repair",
            action="launcher" if missing else _parts(spec, paths),
        )
    ]


def _parts(spec: HostSpec, paths: list[str]) -> str:
    """Name what is in files of the launcher in a user's words."""
    words = {spec.paths.train: "launcher", spec.paths.train_site: "presets and settings of `train`"}
    return " and ".join(dict.fromkeys(words.get(path, "unit of runs") for path in paths))


def _manager(spec: HostSpec, record: Record) -> list[Finding]:
    """Judge whether the owner's manager, of which runs are units, is on and outlives logins.

    Without root nobody is asked: the launcher does it, or says who can. One that somebody stopped,
    or that ended by itself, comes back at the next boot.
    """
    launcher, owner = record.launcher, layout.owner_name(spec, record)
    if spec.privilege != "sudo" or record.system.init != "systemd":
        return []
    if launcher.linger is False:
        return [
            Finding(
                id=Id.TRAINING_LINGER_OFF,
                found=f"the user manager of {owner} ends with the last login",
                expected="linger, so that a run outlives it",
                effect="repair",
                action=f"linger for {owner}",
            )
        ]
    if launcher.linger is not True or launcher.manager is not False:
        return []
    return [
        Finding(
            id=Id.TRAINING_MANAGER_OFF,
            found=f"the user manager of {owner} is not on",
            expected="that it is: a run is a unit of it",
            effect="repair",
            action=f"the user manager of {owner}",
        )
    ]


def _masked(spec: HostSpec, record: Record) -> list[Finding]:
    """Judge units that somebody forbade: with one of them no run starts."""
    systems, own = record.launcher.masked, record.launcher.own_masked
    if isinstance(systems, Unknown) or isinstance(own, Unknown) or not (systems or own):
        return []
    file = (*systems, *own)[0]
    unit = file.rpartition("/")[2]
    how = "--user " if own and not systems else "--global " if "/user/" in file else ""
    owner = layout.owner_name(spec, record)
    return [
        Finding(
            id=Id.TRAINING_MANAGER_MASKED,
            found=f"{unit} is masked, by {file}",
            expected=f"that the user manager of {owner} may start runs",
            effect="report",
            action="left alone, since somebody forbade it, and no run of `train` starts: unmask it",
            command=f"{'' if how == '--user ' else 'sudo '}systemctl {how}unmask {unit}",
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
