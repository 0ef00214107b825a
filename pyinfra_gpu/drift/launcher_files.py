"""The files of the launcher as they are to be on a host: the program, what it reads, its unit."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path

from pyinfra_gpu import on_host
from pyinfra_gpu.diagnosis import catalogue
from pyinfra_gpu.drift.files import File
from pyinfra_gpu.drift.layout import ROOT
from pyinfra_gpu.on_host.train.supervise import AGAIN
from pyinfra_gpu.spec import HostSpec, TrainingSpec, env_file


def declared(spec: HostSpec, training: TrainingSpec) -> tuple[File, ...]:
    """Return the files, the program first; root's, where there is root."""
    paths, owner = spec.paths, ROOT if spec.privilege == "sudo" else None
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
    document = {
        "prefix": paths.prefix,
        "python": paths.python,
        "checkout": paths.training,
        "env_file": paths.env_file,
        "env_names": sorted(env_file.variables(spec)),
        "state": paths.state,
        "stamp": paths.stamp,
        "owner": spec.owner,
        "accelerator": spec.accelerator,
        "ranks": spec.smoke.ranks,
        "torch": spec.pytorch.full_version,
        "presets": {name: asdict(each) for name, each in training.presets.items()},
        "stop_grace_s": training.stop_grace_s,
        "log_mib": training.log_mib,
        "keep_runs": training.keep_runs,
        "retry_wait_s": training.retry_wait_s,
        "notify": list(training.notify),
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def _unit(name: str, spec: HostSpec, training: TrainingSpec) -> bytes:
    text = (Path(on_host.__file__).parent / "train" / name).read_text(encoding="utf-8")
    return text.format(
        train=spec.paths.train,
        env_file=spec.paths.env_file,
        grace_s=training.stop_grace_s,
        retry_wait_s=training.retry_wait_s,
        again=AGAIN,
    ).encode()
