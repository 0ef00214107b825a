"""The launcher of training runs: its files as they are to be, whether runs outlive a login, and
which are on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path

from pyinfra_gpu import on_host
from pyinfra_gpu.diagnosis import catalogue
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host.train.host import Site
from pyinfra_gpu.on_host.train.supervise import AGAIN
from pyinfra_gpu.spec import HostSpec, TrainingSpec, env_file
from pyinfra_gpu.stages.files import File, differs
from pyinfra_gpu.stages.finding import Finding, Id, Stage, note, repair
from pyinfra_gpu.stages.layout import findings as layout
from pyinfra_gpu.stages.rules import Rules, known, running

STAGE = Stage.TRAINING


def summary(spec: HostSpec, record: Record) -> str:
    """Say that it is there, where nothing differs."""
    del record
    return "launcher as declared" if spec.training is not None else ""


# -- the files


def declared(spec: HostSpec, training: TrainingSpec) -> tuple[File, ...]:
    """Return the files, the program first; root's, where there is root."""
    paths, owner = spec.paths, layout.ROOT if spec.privilege == "sudo" else None
    read = {
        paths.train_site: _site(spec, training),
        paths.train_unit: _unit("run.service", spec, training),
        paths.train_unit_again: _unit("again.service", spec, training),
    }
    return (
        File(path=paths.train, content=program(paths.python), mode="0755", owner=owner),
        *(File(path=path, content=content, owner=owner) for path, content in read.items()),
    )


@cache
def program(interpreter: str) -> bytes:
    """Return the launcher itself, the same bytes always.

    + interpreter: absolute; see `on_host.train_bundle`

    Raises CatalogueError where what is known of failures is malformed.
    """
    return on_host.train_bundle(interpreter, catalogue.for_hosts())


def _site(spec: HostSpec, training: TrainingSpec) -> bytes:
    """Return what is declared for runs; names of variables, and no value that could be secret."""
    paths = spec.paths
    site = Site(
        prefix=paths.prefix,
        python=paths.python,
        checkout=paths.training,
        env_file=paths.env_file,
        env_names=sorted(env_file.variables(spec)),
        state=paths.state,
        stamp=paths.stamp,
        owner=spec.owner,
        accelerator=spec.accelerator,
        ranks=spec.smoke.ranks,
        torch=spec.pytorch.full_version,
        presets={name: asdict(each) for name, each in training.presets.items()},
        stop_grace_s=training.stop_grace_s,
        log_mib=training.log_mib,
        keep_runs=training.keep_runs,
        retry_wait_s=training.retry_wait_s,
        notify=list(training.notify),
    )
    return (json.dumps(asdict(site), indent=1) + "\n").encode()


def _unit(name: str, spec: HostSpec, training: TrainingSpec) -> bytes:
    text = (Path(on_host.__file__).parent / "train" / name).read_text(encoding="utf-8")
    return text.format(
        train=spec.paths.train,
        env_file=spec.paths.env_file,
        grace_s=training.stop_grace_s,
        retry_wait_s=training.retry_wait_s,
        again=AGAIN,
    ).encode()


# -- the rules


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
