"""What begins and ends runs: start, try, resume, stop."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from . import checks, claims, code, host, presets, runs, units
from .host import CPU, NoRunError, Site, TrainError, now
from .presets import Preset
from .runs import Run

_STARTS_S = 300  # a worktree may be large
_BESIDE_S = 60  # that systemd may take, beside the grace
Part = dict[str, Any]
"""Of a run of several hosts, the same for all: {"hosts", "run", "address" and "port" of the first},
for a check the hosts alone; and "host", which this one is."""


def say(text: str) -> None:
    print(text, file=sys.stderr)


def start(
    site: Site,
    preset: str | None,
    words: list[str],
    *,
    settings: Sequence[str] = (),
    like: str | None = None,
    dry: bool = False,
    **more: Any,
) -> int:
    """Check everything, write the run down, start it, and leave it to itself."""
    old = runs.whole(runs.chosen(site, like)) if like else None
    if old and old.across and not more["part"]:
        of = f"run {old.run} is of {', '.join(old.across)} together"
        raise TrainError(f"{of}: repeat it with --across")
    run = _planned(site, old.settings if old else presets.chosen(site, preset), settings, **more)
    run.words = words
    if old:
        run.words, run.code = words or old.words, old.code
        run.overrides = {**old.overrides, **run.overrides}
    if dry and not presets.secret_in(words):
        run.begin_from(site, None)
        print(shlex.join(run.command))
    checks.refuse(site, run)
    if run.settings.checkpoints is None:
        say(f"warning: preset {run.preset} names no checkpoints, so this run cannot be resumed")
    if not dry:
        _launch(site, run)
        _announce(site, run, f"started, {run.nproc} rank{'' if run.nproc == 1 else 's'}")
    elif run.part:
        commit = old.commit if old else code.head(Path(site.checkout))
        _answer(run, runs.new_name(run.settings.name), {"commit": commit})
    return 0


def _planned(
    site: Site, preset: Preset, settings: Sequence[str], *, gpus: str | None, **more: Any
) -> Run:
    """Return a run that is not written down: it has no folder and no name yet."""
    preset = presets.with_settings(preset, settings)
    devices, ranks = checks.devices(site, preset, gpus)
    return Run(
        folder=site.runs / "RUN",
        run="RUN",
        state="starting",
        host=socket.gethostname(),
        preset=preset.name,
        spec=asdict(preset),
        overrides=dict(each.split("=", 1) for each in settings),
        devices=devices,
        ranks=ranks,
        gpus=devices[:ranks],
        **more,
    )


def _launch(site: Site, run: Run, point: Path | None = None) -> None:
    """Write a run down and start its unit; of a new run that is refused nothing is left."""
    new, again = not run.created, run.settings.resume_after_reboot and not run.across
    units.ensure(site, again)
    try:
        if new:
            _make(site, run)
        run.boot_id, run.after_reboot = host.boot_id(), site.reboot_wait_s if again else 0
        run.begin_from(site, point)
        run.save()
    except BaseException:
        if new:
            shutil.rmtree(run.folder, ignore_errors=True)
        raise
    failed, until = "", time.monotonic() + _STARTS_S
    try:
        units.start(run.run)
    except TrainError as error:
        failed = str(error)
    while (after := runs.record(run.folder)).state == "starting" and not failed:
        failed = "it does not begin" if time.monotonic() > until else ""
        time.sleep(0.1)
    if not failed and not after.refused:
        return
    if after.refused and new:
        shutil.rmtree(run.folder, ignore_errors=True)
    elif after.state == "starting":
        after.state = "ended"
        after.save()
    see = f"journalctl --user -u {units.unit(run.run)}"
    raise TrainError(after.refused or f"the run did not start ({failed}): see `{see}`")


def _make(site: Site, run: Run) -> None:
    """Make the folder of a new run, with what it takes to say later what ran."""
    runs.forget_old(site)
    run.folder = runs.make(site, str(run.preset), run.part["run"] if run.part else None)
    run.run, run.created = run.folder.name, now()
    run.code = run.code or code.snapshot(Path(site.checkout))
    run.commit = run.code[0][1]
    run.dirty = any(head != commit for _, head, commit in run.code)
    run.versions = host.versions(site)
    (run.folder / "packages.txt").write_text(host.packages(site), encoding="utf-8")


def _announce(site: Site, run: Run, what: str) -> None:
    if (as_it_is := runs.read(run.folder)).state == "queued":
        what = waits_for(site, as_it_is)
    if run.part:
        what += f", with {', '.join(each for each in run.across or () if each != run.part['host'])}"
    print(f"{run.run} {what}")
    if not host.from_controller():
        for words in ("watch", "logs -f", "stop"):
            print(f"  train {words} {run.run}")


def waits_for(site: Site, run: Run) -> str:
    """Return for what a run in the queue waits."""
    held = dict.fromkeys(claims.holders(site, run.devices).values())
    what = "the CPU" if run.devices == [CPU] else f"{run.ranks} of {len(run.devices)} GPUs"
    return f"waits for {what}{', taken by ' if held else ''}{', '.join(held)}"


# -- what the controller asks of a run of several hosts


def part_of(text: str | None) -> Part | None:
    """Return what a host has to know of a run of several, from the controller's JSON."""
    return None if text is None else {**json.loads(text), "host": os.environ["PYINFRA_GPU_HOST"]}


def _answer(run: Run, name: str, same: dict[str, Any]) -> None:
    """Print what must be alike on all hosts, and where this one can be met."""
    said = host.call("hostname", "-I").stdout
    known = (word for word in said.split() if "." in word and not word.startswith("169.254."))
    with socket.create_server(("", 0)) as server:
        place = {"address": next(known, ""), "port": int(server.getsockname()[1])}
    print(json.dumps({"run": name, "same": {"number of ranks": run.ranks, **same}, **place}))


# -- resume


def resume(site: Site, name: str | None, *, dry: bool, part: Part | None, **more: Any) -> int:
    """Let a run go on from its newest complete checkpoint."""
    run = runs.whole(runs.chosen(site, name, across=part is not None))
    point = _point(run, part)
    if not dry:
        run = go_on(site, run, point, part=part, **more)
        _announce(site, run, f"resumes from {point.name}")
        return 0
    if not part:
        print(f"{run.run} would go on from {point}", flush=True)
    checks.refuse(site, _continued(site, run, part=part, **more))
    if part:
        newest = {"newest run of several hosts": run.run, "commit": run.commit}
        _answer(run, run.run, {**newest, "newest complete checkpoint": point.name})
    return 0


def _point(run: Run, part: Part | None) -> Path:
    """Return from where a run goes on; raise TrainError with what can be done instead."""
    anew = f"start it again with `train start --like {run.run}`"
    if {*(run.across or ())} != {*(part["hosts"] if part else ())}:
        of = f"run {run.run} is of {', '.join(run.across or ['this host alone'])}"
        remedy = (
            "resume it with --across and just those hosts" if run.across else "leave out --across"
        )
        raise TrainError(f"{of}: {remedy}")
    if not run.over and not run.waits_for_boot:
        raise TrainError(f"run {run.run} is {run.outcome}: see `train watch {run.run}`")
    if run.outcome == "finished":
        raise TrainError(f"run {run.run} has finished, nothing of it is left to do: {anew}")
    if not run.settings.resume:
        raise TrainError(f"preset {run.preset} does not say how to resume ('resume'): {anew}")
    if (point := run.newest()) is None:
        whose = " with the files of all hosts' ranks" if run.across else ""
        what = f"run {run.run} has left no complete checkpoint{whose} at {run.pattern}"
        raise TrainError(f"{what}: {anew}")
    return point


def _continued(site: Site, run: Run, *, gpus: str | None, **more: Any) -> Run:
    """Return the run as it would go on."""
    devices, _ = checks.devices(site, replace(run.settings, ranks=run.ranks), gpus)
    given = {name: each for name, each in more.items() if each is not None}
    given |= {"state": "starting", "waits": None, "retried": 0, "refused": ""}
    return replace(run, devices=devices, **given)


def go_on(site: Site, run: Run, point: Path | None, **more: Any) -> Run:
    """Start a run again, from a checkpoint or the beginning."""
    as_it_is = runs.read(run.folder)
    if not (as_it_is.over or as_it_is.waits_for_boot):
        raise TrainError(f"run {run.run} is {as_it_is.state} already: see `train list`")
    continued = _continued(site, run, **more)
    checks.refuse(site, continued)
    _launch(site, continued, point)
    return continued


def again(site: Site) -> int:
    """Let runs go on that a reboot cut off, as soon as the host is proven; the unit of a boot.

    What one of them meets, such as a full disk, is no matter of the others'.
    """
    while waiting := [run for run in runs.all_of(site) if run.waits_for_boot]:
        for run in waiting:
            if not run.unproven and host.unproven(site):
                continue
            gpus = None if run.devices == [CPU] else ",".join(run.devices)
            try:
                go_on(site, run, run.resumable(), gpus=gpus, queue=True)
            except (TrainError, OSError, ValueError, KeyError, TypeError) as error:
                say(f"{run.run}: {error}")
        time.sleep(10)
    return 0


# -- stop


def stop(site: Site, name: str | None, *, across: bool = False) -> int:
    """End a run with all that it started; a damaged record keeps nobody from that."""
    run = runs.chosen(site, name, going=True, across=across)
    if run.over:
        raise NoRunError(run.damaged or f"run {run.run} has ended already: {run.outcome}")
    if run.across and not across:
        others = ", ".join(run.across)
        say(f"warning: {run.run} is one of {others} together, and fails there: see `stop --across`")
    if sys.stderr.isatty():
        say(f"{run.run} has up to {site.stop_grace_s} s to end by itself ...")
    became = end(site, run, host.asked_by())
    print(f"{run.run} {became}{', and waits no more' if run.state == 'waiting' else ''}")
    return 0


def end(site: Site, run: Run, who: str) -> str:
    """Stop a run's unit, write down who did so, and return what became of the run."""
    was_on = run.last is not None and run.last.outcome is None
    units.stop(run.run, site.stop_grace_s + _BESIDE_S)
    run = runs.read(run.folder)
    if run.damaged:
        return f"was ended; {run.damaged}"
    killed = was_on and run.outcome == "lost"  # its supervisor was killed too
    if run.last is not None and (killed or (was_on and run.last.outcome == "stopped")):
        run.last.outcome, run.last.stopped_by = "stopped", who
        if killed:
            run.last.exit, run.last.ended = -signal.SIGKILL, now()
    run.state, run.waits, run.after_reboot = "ended", None, 0
    with contextlib.suppress(OSError):  # on a full disk it has ended all the same
        run.save()
    return f"{run.outcome}, by SIGKILL" if killed else run.outcome


# -- try


def tried(
    site: Site, name: str, *, settings: Sequence[str], seconds: int, **more: Any
) -> tuple[Run, str]:
    """Train a few steps of a preset; return the run, and how much of its GPUs' memory it took."""
    preset = presets.with_settings(presets.chosen(site, name), settings)
    if not preset.try_with:
        raise TrainError("it does not say how it is tried: give it 'try_with', arguments")
    few = {**preset.arguments, **preset.try_with}
    preset = replace(preset, arguments=few, checkpoints=None, resume_after_reboot=False)
    run = _planned(site, preset, [], trial=True, **more)
    checks.refuse(site, run)
    _launch(site, run)
    say(f"{name}: {run.run} ...")
    until, most, memory = time.monotonic() + seconds, 0, "-"
    while not (run := runs.read(run.folder)).over:
        for gpu in [] if run.gpus in ([], [CPU]) else host.gpus():
            if gpu.uuid in run.gpus and gpu.used_mib > most:
                most = gpu.used_mib
                memory = f"{most / 1024:.1f} of {gpu.total_mib / 1024:.1f} GiB"
        if time.monotonic() > until:
            end(site, run, f"`train try --seconds {seconds}`, whose time was over")
        time.sleep(1)
    return run, memory
