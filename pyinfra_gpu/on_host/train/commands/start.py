"""`train start` and `train resume`: check all, write it down, hand over to the supervisor."""

from __future__ import annotations

import argparse
import json
import shlex
import sys

from .. import across, checks, environment, presets, resuming, rundir
from ..checks import Asked
from ..errors import TrainError
from ..running import child
from ..site import Site
from . import asking, going_on, trying, writing


def start(site: Site, asked: argparse.Namespace) -> int:
    """Start a run and leave it to itself; return the exit code."""
    like = rundir.chosen(site, asked.like) if asked.like else None
    preset, words = asking.preset_of(site, asked, like)
    wanted, known = asking.wanted(site, asked, preset, words)
    asking.refuse_across(wanted)
    found = checks.problems(site, wanted, known)
    if asked.dry and not presets.secret_in(words):
        _show(site, wanted)
    asking.refuse(found)
    for text in (*checks.warnings(preset), *trying.warnings(site, preset.name)):
        print(f"warning: {text}", file=sys.stderr)
    if not asked.dry:
        part = across.read_part() if wanted.hosts > 1 else None
        run = writing.written(site, wanted, asked.set, like, part)
        writing.hand_over(run, None)
        if part is not None:
            port = run.request()["across"]["port"]
            print(json.dumps({"run": run.name, "port": port, "commit": run.read()["commit"]}))
        else:
            writing.say(site, run, f"is on, {_ranks(wanted.ranks)}")
    return 0


def resume(site: Site, asked: argparse.Namespace) -> int:
    """Let a run that has ended go on from its newest complete checkpoint."""
    run = rundir.chosen(site, asked.run)
    document = run.settled()
    if document["state"] != "ended" and not rundir.waits_for_boot(document):
        raise TrainError(f"run {run.name} is {document['state']}: see `train watch {run.name}`")
    request = run.request()
    preset = presets.from_json(request["preset"])
    if document["across"]:
        raise TrainError(
            f"run {run.name} was one of several hosts: start it anew with `pyinfra-gpu train"
            " INVENTORY start --across GROUP`"
        )
    anew = f"start it anew with `train start --like {run.name}`"
    if rundir.outcome(document) == "finished":
        raise TrainError(f"run {run.name} has finished, nothing of it is left to do: {anew}")
    if not preset.resume:
        raise TrainError(f"preset {preset.name} does not say how to resume ('resume'): {anew}")
    newest = resuming.newest(run, request, document["created"])
    if newest is None:
        values = child.values(run.folder, preset, int(request["ranks"]))
        pattern = presets.filled(str(preset.checkpoints), values)
        raise TrainError(f"run {run.name} has left no complete checkpoint at {pattern}: {anew}")
    going_on.go_on(site, run, newest, asked)
    writing.say(site, run, f"goes on from {newest.path.name}")
    return 0


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
    print(shlex.join(child.command(site, wanted.preset, wanted.ranks, program)))
