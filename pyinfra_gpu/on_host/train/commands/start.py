"""`train start` and `train resume`: check all, write it down, hand over to the supervisor."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from .. import (
    across,
    checkpoints,
    checks,
    code,
    environment,
    presets,
    resuming,
    retyped,
    rundir,
    saying,
)
from ..across import Across
from ..checkpoints import Checkpoint
from ..checks import Asked
from ..errors import TrainError
from ..rundir import Document, Run
from ..running import child
from ..site import Site
from . import asking, going_on, trying, writing


def start(site: Site, asked: argparse.Namespace) -> int:
    """Start a run and leave it to itself; return the exit code."""
    like = rundir.chosen(site, asked.like) if asked.like else None
    if like is not None:
        asking.refuse_part(like, asked)
    preset, words = asking.preset_of(site, asked, like)
    wanted, known = asking.wanted(site, asked, preset, words)
    what = ("--like", like.name) if like else (preset.name,)
    asking.refuse_across(wanted, retyped.of_options(asked, *what))
    found = checks.problems(site, wanted, known)
    if asked.dry and not presets.secret_in(words):
        _show(site, wanted)
    asking.refuse(found)
    for text in (*checks.warnings(site, preset), *trying.warnings(site, preset.name)):
        saying.say(f"warning: {text}")
    if asked.dry and wanted.hosts > 1:
        commit = code.commit(Path(site.checkout))
        _tell(ranks=wanted.ranks, commit=commit)
    if not asked.dry:
        part = across.read_part() if wanted.hosts > 1 else None
        run = writing.written(site, wanted, asked.set, like, part)
        _on(site, run, part, f"is on, {_ranks(wanted.processes)}")
    return 0


def resume(site: Site, asked: argparse.Namespace) -> int:
    """Let a run that has ended go on from its newest complete checkpoint."""
    run = rundir.chosen(site, asked.run, across=asked.hosts > 1)
    if asked.dry:
        return _resumed(site, asked, run)
    with run.going_on():
        return _resumed(site, asked, run)


def _resumed(site: Site, asked: argparse.Namespace, run: Run) -> int:
    document, request = run.settled(), run.request()
    point = _point(run, document, request, asked)
    if asked.dry:
        if asked.hosts == 1:  # said also where GPUs are taken: that is what was asked
            print(f"{run.name} would go on from {point.path}", flush=True)
        going_on.checked(site, run, asked)
        told = {name: request[name] for name in ("ranks",)} | {"across": document["across"]}
        if asked.hosts > 1:
            _tell(run=run.name, commit=document["commit"], checkpoint=point.path.name, **told)
        return 0
    part = across.read_part() if asked.hosts > 1 else None
    going_on.go_on(site, run, point, asked, part)
    _on(site, run, part, f"goes on from {point.path.name}", document)
    return 0


def _point(
    run: Run, document: Document, request: Document, asked: argparse.Namespace
) -> Checkpoint:
    """Return from where a run can go on; raises TrainError with what to do where it cannot."""
    if document["state"] != "ended" and not rundir.waits_for_boot(document):
        raise TrainError(f"run {run.name} is {document['state']}: see `train watch {run.name}`")
    together, hosts = document["across"], asked.hosts
    like = retyped.of_options(asked, "--like", run.name)
    whole = like.together(rundir.group(run)) if together else f"`{like.here()}`"
    anew = f"start it anew with {whole}"
    if together and hosts == 1:
        names = ", ".join(together)
        again = retyped.of_options(asked, run.name).together(rundir.group(run), "resume")
        raise TrainError(f"run {run.name} is one of {names} together: give {again}")
    if hosts > 1 and not together:
        raise TrainError(f"run {run.name} is of this host alone: leave out --across")
    preset = presets.from_json(request["preset"])
    if rundir.outcome(document) == "finished":
        raise TrainError(f"run {run.name} has finished, nothing of it is left to do: {anew}")
    if not preset.resume:
        raise TrainError(f"preset {preset.name} does not say how to resume ('resume'): {anew}")
    newest = resuming.newest(run, request, document["created"])
    if newest is None:
        values = child.values(run.folder, preset, int(request["ranks"]))
        pattern = checkpoints.place(preset, values)
        folder = checkpoints.argument(preset)
        if together and folder and checkpoints.found(preset, values):
            whole = like.changed(folder, "FOLDER").together(rundir.group(run))
            anew = "some are there in part, as in a folder that the hosts do not share: give one"
            anew += f" that they do with {whole}"
        whose = " with the files of all hosts' ranks" if together else ""
        raise TrainError(
            f"run {run.name} has left no complete checkpoint{whose} at {pattern}: {anew}"
        )
    return newest


def _on(
    site: Site, run: Run, part: Across | None, what: str, before: Document | None = None
) -> None:
    """Hand a run over, and say so: to a person, or to the controller that leads it."""
    writing.hand_over(run, before)
    if part is None:
        writing.say(site, run, what)
        return
    _tell(run=run.name, port=run.request()["across"]["port"], commit=run.read()["commit"])


def _tell(**told: object) -> None:
    """Print what the controller reads."""
    print(json.dumps(told))


def _ranks(count: int) -> str:
    return f"{count} rank{'' if count == 1 else 's'}"


def _show(site: Site, wanted: Asked) -> None:
    """Print what a start would run, and in which environment."""
    program = child.words(site, site.runs / "RUN", wanted.preset, wanted.ranks, wanted.words, None)
    print(f"in a worktree of {site.checkout}")
    for name, value in environment.recorded(
        environment.read(site), wanted.preset.variables
    ).items():
        print(f"  {name}={shlex.quote(value)}")
    print(f"on {wanted.ranks} of: {', '.join(wanted.devices)}")
    command = child.command(site, wanted.preset, wanted.ranks, program, wanted.hosts)
    print(shlex.join(command))
    if "--no-python" in command:
        print("with --log-dir besides, and before the program `sh`, which turns it to its log")
