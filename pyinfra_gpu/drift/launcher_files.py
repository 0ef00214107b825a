"""The files of the launcher as they are to be on a host: the program, what it reads, its unit."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache

from pyinfra_gpu import on_host
from pyinfra_gpu.diagnosis import catalogue
from pyinfra_gpu.drift.files import File
from pyinfra_gpu.drift.layout import ROOT
from pyinfra_gpu.on_host.train.supervise import AGAIN
from pyinfra_gpu.spec import HostSpec, TrainingSpec, env_file


def declared(spec: HostSpec, training: TrainingSpec) -> tuple[File, ...]:
    """Return the files, the program first; root's, where there is root."""
    paths, owner = spec.paths, ROOT if spec.privilege == "sudo" else None
    return (
        File(path=paths.train, content=program(paths.python), mode="0755", owner=owner),
        File(path=paths.train_site, content=_site(spec, training), owner=owner),
        File(path=paths.train_unit, content=_unit(spec, training), owner=owner),
        File(path=paths.train_unit_again, content=_unit_again(spec), owner=owner),
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


def _unit(spec: HostSpec, training: TrainingSpec) -> bytes:
    """Return the template: its control group is the job, and ends with its supervisor."""
    lines = (
        env_file.HEADER,
        "[Unit]",
        "Description=Training run %i",
        "CollectMode=inactive-or-failed",
        "StartLimitIntervalSec=0",
        "[Service]",
        "Type=exec",
        f"EnvironmentFile={spec.paths.env_file}",
        f"ExecStart={spec.paths.train} supervise %i",
        # All that the run has started is asked to end, then killed; so is what is left behind it.
        "KillMode=control-group",
        "SendSIGKILL=yes",
        f"TimeoutStopSec={training.stop_grace_s}",
        # After a failure that mostly passes.
        f"RestartForceExitStatus={AGAIN}",
        f"RestartSec={training.retry_wait_s}",
        # Where memory runs out, one rank is killed, and the supervisor says which.
        "OOMPolicy=continue",
        "Slice=app.slice",
        "UMask=0077",
    )
    return "\n".join([*lines, ""]).encode()


def _unit_again(spec: HostSpec) -> bytes:
    """Return the unit that looks after a boot which runs are to go on; the launcher enables it.

    It is not named as runs are: what waits for the host to be proven uses nothing of it.
    """
    lines = (
        env_file.HEADER,
        "[Unit]",
        "Description=Training runs that go on after a reboot",
        "[Service]",
        "Type=exec",
        f"ExecStart={spec.paths.train} again",
        "UMask=0077",
        "[Install]",
        "WantedBy=default.target",
    )
    return "\n".join([*lines, ""]).encode()
