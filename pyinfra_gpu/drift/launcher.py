"""Is the launcher of training runs there, and can a run outlive a login? Which runs are on?"""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra_gpu.drift import layout
from pyinfra_gpu.drift.files import File, differs
from pyinfra_gpu.drift.finding import Finding, Id, Stage, note, repair
from pyinfra_gpu.drift.launcher_files import declared
from pyinfra_gpu.drift.rules import Rules, known, running
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.spec import HostSpec

STAGE = Stage.TRAINING


def summary(spec: HostSpec, record: Record) -> str:
    """Say that it is there, where nothing differs."""
    del record
    return "launcher as declared" if spec.training is not None else ""


def wrong(spec: HostSpec, record: Record) -> list[File]:
    """Return the files that are not as declared."""
    files = declared(spec, spec.training) if spec.training else ()
    return [each for each in files if differs(record, each)]


def _files(spec: HostSpec, record: Record) -> Iterator[Finding]:
    if files := wrong(spec, record):
        names = ", ".join(each.path.rpartition("/")[2] for each in files)
        expected = f"{spec.paths.train} and what it reads, as declared"
        found = f"{names} not as declared"
        yield repair(Id.TRAINING_LAUNCHER_DIFFERS, found, expected, f"write {names}")


def _manager(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge whether the owner's manager, of which runs are units, runs and outlives logins.

    Without root nobody is asked: the launcher does it, or says who can.
    """
    if spec.training is None or spec.privilege != "sudo" or record.system.init != "systemd":
        return
    owner, launcher, id_ = layout.owner_name(spec, record), record.launcher, Id.TRAINING_MANAGER_OFF
    manager = f"the user manager of {owner}"
    if not known(launcher.linger):
        found, expected = f"{manager} ends with the last login", "linger, so that a run outlives it"
        yield repair(id_, found, expected, f"enable linger for {owner}")
    elif known(launcher.manager) is False:
        expected = "that it is: a run is a unit of it"
        yield repair(id_, f"{manager} is not running", expected, f"start {manager}")


def _runs(spec: HostSpec, record: Record) -> Iterator[Finding]:
    del spec
    if runs := running(record):
        found = f"{runs} {'are' if runs.startswith('runs ') else 'is'} running"
        action = "nothing that it uses is changed until it has ended"
        yield note(Id.TRAINING_RUN_ON, found, "to go on", action)


judge = Rules(_files, _manager, _runs)
