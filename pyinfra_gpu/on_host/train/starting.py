"""What begins and ends runs: start, try, resume, stop, and what is in the way of a start."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..terminal import some
from . import claims, code, host, presets, runs, units
from .host import AGAIN, CPU, NoRunError, Site, TrainError, above, now
from .presets import Preset
from .runs import Run

PROVE = "run `pyinfra INVENTORY tasks/smoke.py` for this host"
_GIB = 1 << 30
_LOGS_GIB = 1.0
_BESIDE_S = 60  # that systemd may take, beside the grace
Problems = Iterator[tuple[str, str]]
Part = dict[str, Any]
"""Of a run of several hosts, the same for all: {"hosts", "run", "address" and "port" of the first},
for a check the hosts alone; and "host", which this one is."""


def say(text: str) -> None:
    print(text, file=sys.stderr)


# -- what is in the way of a start, all of it at once, each with its remedy


def devices(site: Site, preset: Preset, gpus: str | None) -> tuple[list[str], int]:
    """Return the devices that a run may have, and how many ranks it has on this host.

    + gpus: indices or UUIDs, as they were typed
    """
    if site.accelerator == "cpu":
        if gpus is not None:
            raise TrainError("this host has no GPUs, by its data: leave out --gpus")
        return [CPU], preset.ranks or (1 if preset.launch == "python" else site.ranks)
    known = host.gpus()
    if not known:
        raise TrainError("the driver shows no GPU: look at `nvidia-smi`")
    found = [gpu.uuid for gpu in known]
    if gpus is not None:
        names = {name: gpu.uuid for gpu in known for name in (str(gpu.index), gpu.uuid)}
        words = [word.strip() for word in gpus.split(",")]
        found = [names[word] for word in dict.fromkeys(words) if word in names]
        if len(found) < len(words):
            has = ", ".join(str(gpu.index) for gpu in known)
            raise TrainError(f"--gpus {gpus:.80}: give GPUs of this host, each once, of {has}")
    ranks = preset.ranks or len(found)
    if ranks > len(found):
        what = f"preset {preset.name} has {ranks} ranks, one for each GPU, and there are"
        raise TrainError(f"{what} {len(found)}: give --set ranks={len(found)}")
    return found, ranks


def refuse(site: Site, run: Run) -> None:
    """Raise TrainError with all that is in the way of a run, written down already or not yet."""
    preset = run.settings
    found = [*_several(run, preset)] or [
        each for check in (_host, _room, _taken) for each in check(site, run, preset)
    ]
    if found:
        lines = [f"  {what}\n    {remedy}" for what, remedy in found]
        raise TrainError("\n".join(["this run cannot start:", *lines]))


def _several(run: Run, preset: Preset) -> Problems:
    if not run.across:
        return
    if preset.launch != "torchrun":
        yield f"preset {preset.name} is launched by python", "several hosts take launch: 'torchrun'"
    for name in (name for name, value in preset.arguments.items() if "{run}" in str(value)):
        what = f"preset {preset.name} has the run's own folder in {name}, which hosts do not share"
        yield what, f"give --set {name}=FOLDER, one that all of them share, at the same path"
    for option in ("retries", "queue"):
        if getattr(run, option):
            yield "hosts cannot wait for each other", f"leave out --{option}"


def _host(site: Site, run: Run, preset: Preset) -> Problems:
    if not run.unproven and (why := host.unproven(site)):
        yield why, f"{PROVE}, or give --unproven"
    if found := units.problem():
        yield found
    for path in (site.python, site.env_file):
        if not os.access(path, os.R_OK):
            yield f"{path} cannot be read", AGAIN
    checkout = Path(site.checkout)
    if not shutil.which("git"):
        yield "git, which a run's code comes by, is not installed", AGAIN
    elif code.head(checkout) is None:
        yield f"{checkout} is no checkout with a commit", "set training_repo and training_commit"
    elif preset.file and not (checkout / preset.file).is_file():
        yield f"{checkout} has no {preset.file}", f"correct 'file' of {preset.name}"
    if word := presets.secret_in([*presets.argument_words(preset.arguments, {}), *run.words]):
        yield f"{word} looks like a secret, and every user sees it", presets.ELSEWHERE


def _room(site: Site, run: Run, preset: Preset) -> Problems:
    saves = run.saves or site.runs
    saves = site.runs if saves.is_relative_to(site.runs) else saves
    if "/~" in (run.pattern or ""):
        yield "only a shell replaces the ~ of the checkpoints' folder", "write {home}"
    needs = {site.runs: ("a run's logs", _LOGS_GIB)}
    if preset.checkpoint_gib:
        own = _LOGS_GIB if saves == site.runs else 0
        needs[saves] = ("two checkpoints", 2 * preset.checkpoint_gib + own)
    user = getpass.getuser()
    for folder in dict.fromkeys((site.runs, saves)):
        if not os.access(above(folder), os.W_OK | os.X_OK):
            make = f"run `sudo install -d -o {user} {shlex.quote(str(folder))}`"
            yield f"{user} may not write in {above(folder)}", f"{make}, or name another folder"
    for folder, (what, gib) in needs.items():
        if (free := shutil.disk_usage(above(folder)).free / _GIB) < gib:
            need = f"{free:.1f} GiB are free below {above(folder)}, and {what} need {gib:g}"
            yield need, "delete files there"


def _taken(site: Site, run: Run, preset: Preset) -> Problems:
    held, count = claims.holders(site, run.devices), len(run.devices)
    if count - len(held) < run.wants and not run.queue:
        what = "the CPU is" if CPU in held else f"{len(held)} of {count} GPUs are"
        names = [*dict.fromkeys(held.values())]
        yield f"{what} taken by {', '.join(names)}", taken_remedy(names, run)
    known, users = ([], {}) if run.devices == [CPU] else (host.gpus(), host.gpu_users())
    for gpu in (gpu for gpu in known if gpu.uuid in run.devices and gpu.uuid not in held):
        if users.get(gpu.uuid):
            who = some(users[gpu.uuid], 3)
            yield f"GPU {gpu.index} is in use by {who}", "end it, or give other --gpus"
        free = (gpu.total_mib - gpu.used_mib) / 1024
        if free < preset.gpu_gib:
            has = f"GPU {gpu.index} has {free:.1f} GiB free of {gpu.total_mib / 1024:.1f}"
            needs = f"and preset {preset.name} needs {preset.gpu_gib:g}"
            yield f"{has}, {needs}", "end what has it, give other --gpus, or a smaller preset"


def taken_remedy(names: list[str], run: Run) -> str:
    """Return what helps where runs have what another one needs."""
    ends = " and ".join(f"`train stop {name}`" for name in names if name)
    ways = [] if run.across else ["give --queue to wait"]
    ways += [f"end what has it: {ends}"] if ends else []
    return ", or ".join(ways) or "start it when they have ended"


# -- start


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
        of = f"run {old.run} is of {', '.join(old.across)}"
        raise TrainError(f"{of}: repeat it with --across")
    run = _planned(site, old.settings if old else presets.chosen(site, preset), settings, **more)
    run.words = words
    if old:
        run.words, run.code = words or old.words, old.code
        run.overrides = {**old.overrides, **run.overrides}
    if dry and not presets.secret_in(words):
        run.begin_from(site, None)
        print(shlex.join(run.command))
    refuse(site, run)
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
    may_have, ranks = devices(site, preset, gpus)
    return Run(
        folder=site.runs / "RUN",
        run="RUN",
        state="starting",
        host=socket.gethostname(),
        preset=preset.name,
        spec=asdict(preset),
        overrides=dict(each.split("=", 1) for each in settings),
        devices=may_have,
        ranks=ranks,
        gpus=may_have[:ranks],
        **more,
    )


def _launch(site: Site, run: Run, point: Path | None = None) -> None:
    """Write a run down and start its unit; of a new run that does not start nothing is left."""
    new, see = not run.created, "journalctl --user -u"
    run.after_reboot = run.settings.resume_after_reboot and not run.across
    units.ensure(site, run.after_reboot)
    try:
        if new:
            _make(site, run)
        run.boot_id = host.boot_id()
        run.begin_from(site, point)
        run.save()
    except BaseException:
        if new:
            shutil.rmtree(run.folder, ignore_errors=True)
        raise
    try:
        units.start(run.run)
    except TrainError as error:
        what = f"the run did not start ({error}): see `{see} {units.unit(run.run)}`"
        refused = runs.record(run.folder).refused
        if new:
            shutil.rmtree(run.folder, ignore_errors=True)
        raise TrainError(refused or what) from None


def _make(site: Site, run: Run) -> None:
    """Make the folder of a new run, with what it takes to say later what ran."""
    runs.forget_old(site)
    run.folder = runs.make(site, str(run.preset), run.part["run"] if run.part else None)
    run.run, run.created = run.folder.name, now()
    run.code = run.code or code.snapshot(Path(site.checkout))
    run.commit = run.code[0][1]
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
    if dry and not part:
        print(f"{run.run} would go on from {point}", flush=True)
    continued = _continued(site, run, part=part, **more)
    if not dry:
        _launch(site, continued, point)
        _announce(site, continued, f"resumes from {point.name}")
    elif part:
        newest = {"newest run of several hosts": run.run, "commit": run.commit}
        _answer(run, run.run, {**newest, "newest complete checkpoint": point.name})
    return 0


def _point(run: Run, part: Part | None) -> Path:
    """Return from where a run goes on; raise TrainError with what can be done instead."""
    anew = f"start it again with `train start --like {run.run}`"
    if {*(run.across or ())} != {*(part["hosts"] if part else ())}:
        of = f"run {run.run} is of {', '.join(run.across or ['this host alone'])}"
        just = "resume it with --across and just those hosts"
        raise TrainError(f"{of}: {just if run.across else 'leave out --across'}")
    if not run.over:
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
    """Return the run as it goes on; raise TrainError where something is in its way."""
    may_have, _ = devices(site, replace(run.settings, ranks=run.ranks), gpus)
    given = {name: each for name, each in more.items() if each is not None}
    given |= {"state": "starting", "waits": "", "retried": 0, "refused": ""}
    continued = replace(run, devices=may_have, **given)
    refuse(site, continued)
    return continued


def again(site: Site) -> int:
    """Let runs go on that a reboot cut off, as soon as the host is proven; the unit of a boot.

    What one of them meets, such as a full disk, is no matter of the others'.
    """
    while waiting := [run.folder for run in runs.all_of(site) if run.goes_on]:
        for run in map(runs.read, waiting):
            if not run.goes_on or (not run.unproven and host.unproven(site)):
                continue
            gpus = None if run.devices == [CPU] else ",".join(run.devices)
            try:
                _launch(site, _continued(site, run, gpus=gpus, queue=True), run.resumable())
            except (TrainError, OSError, ValueError, KeyError, TypeError) as error:
                say(f"{run.run}: {error}")
        time.sleep(10)
    return 0


# -- stop


def stop(site: Site, name: str | None, *, across: bool = False) -> int:
    """End a run with all that it started; a damaged record keeps nobody from that."""
    run = runs.chosen(site, name, going=True, across=across)
    if run.over and not run.goes_on:
        raise NoRunError(run.damaged or f"run {run.run} has ended already: {run.outcome}")
    if run.across and not across:
        others = ", ".join(run.across)
        say(f"warning: {run.run} is one run of {others}, and fails there: see `stop --across`")
    if sys.stderr.isatty():
        say(f"{run.run} has up to {site.stop_grace_s} s to end by itself ...")
    became = end(site, run, host.asked_by())
    print(f"{run.run} {became}{', and waits no more' if run.waits or run.goes_on else ''}")
    return 0


def end(site: Site, run: Run, who: str) -> str:
    """Stop a run's unit, write down who did so, and return what became of the run."""
    was_on = run.last is not None and run.last.outcome is None
    units.stop(run.run, site.stop_grace_s + _BESIDE_S)
    run = runs.read(run.folder)
    if run.damaged:
        return f"was ended; {run.damaged}"
    killed = was_on and run.outcome == "lost"  # its supervisor was killed too
    if was_on and run.last and run.last.outcome in ("lost", "stopped"):
        run.last.outcome, run.last.stopped_by = "stopped", who
    run.state, run.waits, run.after_reboot = "ended", "", False
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
    refuse(site, run)
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
