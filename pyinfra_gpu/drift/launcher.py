"""Is the launcher of training runs there, and can a run outlive a login? Which runs are on?"""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra_gpu.drift import layout
from pyinfra_gpu.drift.files import File, differs
from pyinfra_gpu.drift.finding import Finding, Id, Stage, note, repair, report
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

    Without root nobody is asked: the launcher does it, or says who can. One that somebody stopped,
    or that ended by itself, comes back at the next boot. With a masked unit no run starts.
    """
    if spec.training is None:
        return
    owner, launcher = layout.owner_name(spec, record), record.launcher
    systems, own = known(launcher.masked), known(launcher.own_masked)
    manager = f"the user manager of {owner}"
    if systems or own:
        file = (*systems, *own)[0]
        unit = file.rpartition("/")[2]
        how = "--user " if own and not systems else "--global " if "/user/" in file else ""
        yield report(
            Id.TRAINING_MANAGER_OFF,
            f"{unit} is masked, by {file}",
            f"that {manager} may start runs",
            "left alone: it was masked by hand, and no run of `train` starts. Unmask it",
            f"{'' if how == '--user ' else 'sudo '}systemctl {how}unmask {unit}",
        )
    elif spec.privilege != "sudo" or record.system.init != "systemd":
        return
    elif not known(launcher.linger):
        found, expected = f"{manager} ends with the last login", "linger, so that a run outlives it"
        yield repair(Id.TRAINING_MANAGER_OFF, found, expected, f"enable linger for {owner}")
    elif known(launcher.manager) is False:
        expected = "that it is: a run is a unit of it"
        yield repair(
            Id.TRAINING_MANAGER_OFF, f"{manager} is not running", expected, f"start {manager}"
        )


def _runs(spec: HostSpec, record: Record) -> Iterator[Finding]:
    del spec
    if runs := running(record):
        found = f"{runs} {'are' if runs.startswith('runs ') else 'is'} running"
        action = "nothing that it uses is changed until it has ended"
        yield note(Id.TRAINING_RUN_ON, found, "to go on", action)


judge = Rules(_files, _manager, _runs)
