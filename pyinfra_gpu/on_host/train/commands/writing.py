"""A run is written down whole before it starts; then it is handed over to its unit."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import (
    across,
    calling,
    checkpoints,
    code,
    environment,
    keeping,
    presets,
    room,
    rundir,
    stamp,
    units,
)
from ..across import Across
from ..checks import Asked
from ..errors import TrainError
from ..rundir import Run
from ..running import child
from ..site import Site
from . import queueing


def written(
    site: Site,
    wanted: Asked,
    overrides: Sequence[str],
    like: Run | None,
    part: Across | None = None,
    *,
    trial: bool = False,
) -> Run:
    """Make a run's directory with all that it takes to start it; raises TrainError.

    + overrides: what `--set` gave
    + like: the run whose code it has; None: that of the checkout as it is now
    + part: this host's, in a run of several
    + trial: whether `train try` starts it
    """
    if part is not None:  # each host by itself does not go on
        wanted = replace(wanted, preset=replace(wanted.preset, resume_after_reboot=False))
        part = part if part.port else replace(part, port=across.free_port())
    units.ensure(site, wanted.preset.resume_after_reboot)
    keeping.forget_old(site)
    preset = wanted.preset
    run = rundir.make(site, preset.name, part.run if part else None)
    try:
        parts = _code(site, run, like, part)
        (run.folder / "packages.txt").write_text(stamp.packages(site), encoding="utf-8")
        program = child.words(site, run.folder, preset, wanted.ranks, wanted.words, None)
        command = child.command(site, preset, wanted.ranks, program, wanted.hosts)
        run.ask(_request(wanted, run, parts, command) | {"across": part and part.as_json()})
        hosts = list(part.hosts) if part else None
        document = _document(site, overrides, wanted, run, parts, command, like, hosts)
        run.write({**document, **({"trial": True} if trial else {})})
    except BaseException as error:
        shutil.rmtree(run.folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise TrainError(
                f"the run cannot be written down in {site.runs}: {error.strerror or error}"
                f"{room.remedy(error)}"
            ) from None
        raise
    return run


def _code(site: Site, run: Run, like: Run | None, part: Across | None) -> list[list[str]]:
    """Keep the code of a run in its directory; return its parts, that of the checkout first."""
    checkout = Path(site.checkout)
    if like is None:
        parts = code.keep(checkout, run.folder)
    else:
        parts = like.request()["code"]
        for _, _, name in parts:
            shutil.copyfile(like.folder / name, run.folder / name)
    if part is not None and part.commit not in (None, parts[0][1]):
        raise TrainError(
            f"{checkout} is at commit {parts[0][1][:12]}, and that of {part.hosts[0]} at"
            f" {part.commit[:12]}: run `pyinfra INVENTORY deploy.py` for both"
        )
    return parts


def _request(wanted: Asked, run: Run, parts: list[list[str]], command: list[str]) -> dict[str, Any]:
    """Return what the supervisor needs, so that data which change later do not change this run."""
    values = child.values(run.folder, wanted.preset, wanted.ranks)
    return {
        "preset": wanted.preset.as_json(),
        "words": list(wanted.words),
        "command": command,
        "variables": {
            name: presets.filled(value, values) for name, value in wanted.preset.variables.items()
        },
        "devices": list(wanted.devices),
        "ranks": wanted.ranks,
        "queue": wanted.queue,
        "retries": wanted.retries,
        "code": parts,
        "resumed_from": None,
        "after_reboot": wanted.preset.resume_after_reboot,
    }


def _document(
    site: Site,
    overrides: Sequence[str],
    wanted: Asked,
    run: Run,
    parts: list[list[str]],
    command: list[str],
    like: Run | None,
    hosts: list[str] | None,
) -> dict[str, Any]:
    """Return run.json as it is before the run is on."""
    noted = stamp.read(site) or {}
    values = child.values(run.folder, wanted.preset, wanted.ranks)
    return {
        "schema": rundir.SCHEMA,
        "run": run.name,
        "host": socket.gethostname(),
        "preset": wanted.preset.name,
        "overrides": {**_settings(like), **dict(each.split("=", 1) for each in overrides)},
        "command": command,
        "variables": environment.recorded(environment.read(site), wanted.preset.variables),
        "gpus": list(wanted.devices)[: wanted.ranks],
        "nproc": wanted.processes,
        "commit": parts[0][1],
        "dirty": any((run.folder / name).stat().st_size for _, _, name in parts),
        "versions": stamp.versions(site),
        "stamp": noted.get("fingerprint"),
        "unproven": wanted.unproven,
        "retries": wanted.retries,
        "like": like.name if like else None,
        "across": hosts,
        "checkpoints": checkpoints.place(wanted.preset, values),
        "created": rundir.now(),
        "state": "starting",
        "waits": None,
        "attempts": [],
    }


def _settings(like: Run | None) -> dict[str, str]:
    """Return what `--set` gave to the run that is repeated: advice names it again."""
    try:
        return dict(like.read()["overrides"]) if like is not None else {}
    except (TrainError, KeyError, TypeError, ValueError):
        return {}


def hand_over(run: Run, before: dict[str, Any] | None) -> None:
    """Have the unit started; raises TrainError where the run is neither on nor in the queue.

    + before: the document of a run that has been on before; None: one that never was is removed
    """
    why = units.start(run.name)
    if why is None:
        return
    refusal = run.refusal()
    if before is not None:
        run.write(before)
    elif refusal:
        shutil.rmtree(run.folder, ignore_errors=True)
    unit = units.unit(run.name)
    raise TrainError(refusal or f"the run did not start ({why}): see `journalctl --user -u {unit}`")


def say(site: Site, run: Run, what: str) -> None:
    """Print how a start went, and what a person may type next."""
    if run.read()["state"] == "queued":
        what = queueing.waits_for(site, run).removeprefix("it ")
    print(f"{run.name} {what}")
    for words in (("watch", run.name), ("logs", "-f", run.name), ("stop", run.name)):
        print(f"  {calling.typed(*words)}")
