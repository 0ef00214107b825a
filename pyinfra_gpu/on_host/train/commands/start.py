"""`train start` and `train resume`: check all, write it down, hand over to the supervisor."""

from __future__ import annotations

import argparse
import shlex
import shutil
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import (
    checkpoints,
    checks,
    claims,
    code,
    environment,
    gpus,
    keeping,
    presets,
    rundir,
    stamp,
    units,
)
from ..checks import Asked, Problem
from ..errors import TrainError
from ..presets import Preset, PresetError
from ..rundir import Run
from ..running import child
from ..site import Site


def start(site: Site, asked: argparse.Namespace) -> int:
    """Start a run and leave it to itself; return the exit code."""
    like = rundir.chosen(site, asked.like) if asked.like else None
    preset, words = _preset(site, asked, like)
    wanted, known = _wanted(site, asked, preset, words)
    found = checks.problems(site, wanted, known)
    folder = site.runs / "RUN"
    program = child.words(site, folder, preset, wanted.ranks, words, None)
    command = child.command(site, preset, wanted.ranks, program)
    if asked.dry:
        _show(site, wanted, command)
    _refuse(found)
    for text in checks.warnings(preset):
        print(f"warning: {text}", file=sys.stderr)
    return 0 if asked.dry else _begin(site, asked, wanted, like)


def resume(site: Site, asked: argparse.Namespace) -> int:
    """Let a run that has ended go on from its newest complete checkpoint."""
    run = rundir.chosen(site, asked.run)
    document = run.settled()
    if document["state"] != "ended":
        raise TrainError(f"run {run.name} is {document['state']}: see `train watch {run.name}`")
    request = run.request()
    preset = presets.from_json(request["preset"])
    if not preset.resume:
        raise TrainError(
            f"preset {preset.name} does not say how to resume: give it 'resume', or start anew with"
            f" `train start --like {run.name}`"
        )
    ranks = int(request["ranks"])
    values = child.values(run.folder, preset, ranks)
    begun = _created(document)
    newest = checkpoints.newest(preset, values, ranks, begun)
    if newest is None:
        pattern = presets.filled(str(preset.checkpoints), values)
        raise TrainError(
            f"run {run.name} has left no complete checkpoint at {pattern}: start it anew with"
            f" `train start --like {run.name}`"
        )
    gpus_now = _gpus(site)
    wanted = Asked(
        preset=preset,
        devices=tuple(_devices(site, asked.gpus, gpus_now)),
        ranks=ranks,
        unproven=asked.unproven,
        queue=asked.queue,
    )
    _refuse(checks.problems(site, wanted, gpus_now))
    resumed = {"checkpoint": str(newest.path), "step": newest.step}
    further = tuple(request["words"])
    program = child.words(site, run.folder, preset, ranks, further, resumed)
    request |= {
        "command": child.command(site, preset, ranks, program),
        "resumed_from": str(newest.path),
        "devices": list(wanted.devices),
        "queue": asked.queue,
    }
    (run.folder / "refusal").unlink(missing_ok=True)
    run.ask(request)
    run.write({**document, "state": "starting"})
    return _handed_over(site, run, f"goes on from {newest.path.name}", document)


# -- what is asked for


def _preset(
    site: Site, asked: argparse.Namespace, like: Run | None
) -> tuple[Preset, tuple[str, ...]]:
    words = tuple(asked.words)
    try:
        if like is not None:
            request = like.request()
            preset = presets.from_json(request["preset"])
            words = words or tuple(request["words"])
        else:
            preset = presets.resolved(site.presets, _name(site, asked.preset))
        return presets.with_settings(preset, asked.set), words
    except PresetError as error:
        raise TrainError(str(error)) from None


def _name(site: Site, given: str | None) -> str:
    if not site.presets:
        raise TrainError(
            "no presets are declared for this host: set training_presets, as docs/train.md shows"
        )
    if given is None and len(site.presets) > 1:
        raise TrainError(f"say which preset: {', '.join(site.presets)}")
    return given or next(iter(site.presets))


def _wanted(
    site: Site, asked: argparse.Namespace, preset: Preset, words: tuple[str, ...]
) -> tuple[Asked, list[gpus.Gpu]]:
    known = _gpus(site)
    devices = _devices(site, asked.gpus, known)
    ranks = preset.ranks or (len(devices) if site.accelerator != "cpu" else site.ranks)
    if preset.launch == "python" and preset.ranks is None and site.accelerator == "cpu":
        ranks = 1
    if asked.gpus and ranks > len(devices):
        raise TrainError(
            f"preset {preset.name} has {ranks} ranks, and --gpus names {len(devices)} GPUs: give"
            f" as many, or --set ranks={len(devices)}"
        )
    if site.accelerator != "cpu" and ranks > len(devices):
        raise TrainError(
            f"preset {preset.name} has {ranks} ranks, and this host {len(devices)} GPUs: give"
            f" --set ranks={len(devices)}"
        )
    wanted = Asked(
        preset=replace(preset, ranks=ranks),
        devices=tuple(devices),
        ranks=ranks,
        words=words,
        unproven=asked.unproven,
        queue=asked.queue,
    )
    return wanted, known


def _gpus(site: Site) -> list[gpus.Gpu]:
    return [] if site.accelerator == "cpu" else gpus.listed()


def _devices(site: Site, given: str | None, known: list[gpus.Gpu]) -> list[str]:
    """Return the devices that may be taken: those that are named, else all."""
    if site.accelerator == "cpu":
        if given is not None:
            raise TrainError("this host has no GPUs, by its data: leave out --gpus")
        return [claims.CPU]
    if not known:
        raise TrainError("the driver shows no GPU: look at `nvidia-smi`")
    if given is None:
        return [gpu.uuid for gpu in known]
    found = []
    for word in given.split(","):
        match = [gpu for gpu in known if word in (str(gpu.index), gpu.uuid)]
        if not match:
            indices = ", ".join(str(gpu.index) for gpu in known)
            raise TrainError(f"there is no GPU {word}: this host has {indices}")
        found.append(match[0].uuid)
    return list(dict.fromkeys(found))


def _refuse(found: list[Problem]) -> None:
    if not found:
        return
    lines = [f"  {each.what}\n    {each.remedy}" for each in found]
    raise TrainError("\n".join(["this run cannot start:", *lines]))


def _show(site: Site, wanted: Asked, command: list[str]) -> None:
    variables = environment.recorded(environment.read(site), wanted.preset.variables)
    print(f"in a worktree of {site.checkout}")
    for name, value in variables.items():
        print(f"  {name}={shlex.quote(value)}")
    print(f"on {wanted.ranks} of: {', '.join(wanted.devices)}")
    print(shlex.join(command))


# -- writing it down


def _begin(site: Site, asked: argparse.Namespace, wanted: Asked, like: Run | None) -> int:
    units.ensure_template(site)
    keeping.forget_old(site)
    checkout, preset = Path(site.checkout), wanted.preset
    run = rundir.make(site, preset.name)
    try:
        if like is not None:
            commit = like.request()["commit"]
            _copy(like.folder / "code.diff", run.folder / "code.diff")
        else:
            commit = code.commit(checkout)
            (run.folder / "code.diff").write_bytes(code.difference(checkout))
        (run.folder / "packages.txt").write_text(stamp.packages(site), encoding="utf-8")
        program = child.words(site, run.folder, preset, wanted.ranks, wanted.words, None)
        command = child.command(site, preset, wanted.ranks, program)
        run.ask(_request(wanted, run, commit, command))
        document = _document(site, asked, wanted, run, commit, command, like)
        run.write(document)
    except BaseException as error:
        shutil.rmtree(run.folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise TrainError(f"the run cannot be written down in {site.runs}: {error}") from None
        raise
    return _handed_over(site, run, f"is on, {wanted.ranks} ranks", None)


def _copy(source: Path, target: Path) -> None:
    if source.exists():
        shutil.copyfile(source, target)


def _request(wanted: Asked, run: Run, commit: str | None, command: list[str]) -> dict[str, Any]:
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
        "commit": commit,
        "resumed_from": None,
    }


def _document(
    site: Site,
    asked: argparse.Namespace,
    wanted: Asked,
    run: Run,
    commit: str | None,
    command: list[str],
    like: Run | None,
) -> dict[str, Any]:
    """Return run.json as it is before the run is on."""
    noted = stamp.read(site) or {}
    values = child.values(run.folder, wanted.preset, wanted.ranks)
    pattern = wanted.preset.checkpoints
    return {
        "schema": rundir.SCHEMA,
        "run": run.name,
        "host": socket.gethostname(),
        "preset": wanted.preset.name,
        "overrides": dict(setting.split("=", 1) for setting in asked.set),
        "command": command,
        "variables": environment.recorded(environment.read(site), wanted.preset.variables),
        "gpus": list(wanted.devices)[: wanted.ranks],
        "nproc": wanted.ranks,
        "commit": commit,
        "dirty": bool((run.folder / "code.diff").stat().st_size),
        "versions": stamp.versions(site),
        "stamp": noted.get("fingerprint"),
        "unproven": wanted.unproven or not site.smoke,
        "like": like.name if like else None,
        "checkpoints": presets.filled(pattern, values) if pattern else None,
        "created": rundir.now(),
        "state": "starting",
        "attempts": [],
    }


def _created(document: dict[str, Any]) -> float:
    text = str(document["created"]).removesuffix("Z")
    return time.mktime(time.strptime(text.partition(".")[0], "%Y-%m-%dT%H:%M:%S")) - time.timezone


def _handed_over(site: Site, run: Run, what: str, before: dict[str, Any] | None) -> int:
    """Have the unit started, and say how it went.

    + before: the document of a run that has been on before; None: one that never was is removed
    """
    why = units.start(run.name)
    if why is None:
        if run.read()["state"] == "queued":
            what = f"waits for its turn, behind {_ahead(site, run)}"
        print(f"{run.name} {what}")
        print(f"  train watch {run.name}   train logs -f {run.name}   train stop {run.name}")
        return 0
    refusal = run.refusal()
    if before is not None:
        run.write(before)
    elif refusal:
        shutil.rmtree(run.folder, ignore_errors=True)
    unit = units.unit(run.name)
    raise TrainError(refusal or f"the run did not start ({why}): see `journalctl --user -u {unit}`")


def _ahead(site: Site, run: Run) -> str:
    waiting = claims.waiting(site)
    before = waiting[: waiting.index(run.name)] if run.name in waiting else []
    return ", ".join(before) if before else "whoever has its devices"
