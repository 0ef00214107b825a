"""What begins and ends runs: start, try, resume, stop."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..smoke import files
from . import checkpoints, checks, claims, code, host, presets, runs, several, units
from .checks import Asked
from .host import CPU, Site, TrainError, now
from .runs import Run

_BESIDE_S = 60  # that systemd may take, beside the grace


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
    gpus: str | None = None,
    hosts: int = 1,
    **more: Any,
) -> int:
    """Check everything, write the run down, start it, and leave it to itself."""
    repeated = runs.chosen(site, like) if like else None
    if repeated is not None:
        _refuse_damaged(repeated)
        if repeated.across and hosts == 1:
            together = ", ".join(repeated.across)
            raise TrainError(
                f"run {repeated.run} is of {together} together: repeat it with --across"
            )
        chosen, words = repeated.settings(), words or repeated.words
    else:
        chosen = presets.chosen(site, preset)
    chosen = presets.with_settings(chosen, settings)
    asked, known = checks.asked(site, chosen, words, gpus, hosts=hosts, **more)
    if dry and not presets.secret_in(words):
        _show(site, asked)
    checks.refuse(site, asked, known)
    for text in checks.warnings(site, chosen):
        say(f"warning: {text}")
    if dry:
        if hosts > 1:
            told = {"ranks": asked.ranks, "commit": code.head(Path(site.checkout))}
            print(json.dumps({**told, "address": several.own_address()}))
        return 0
    part = several.read_part() if hosts > 1 else None
    run = _written(site, asked, settings, repeated, part)
    hand_over(run, None)
    _tell(site, run, f"is on, {asked.processes} rank{'' if asked.processes == 1 else 's'}")
    return 0


def _show(site: Site, asked: Asked) -> None:
    folder = site.runs / "RUN"
    given = (site, asked.preset, folder, asked.ranks, asked.words)
    print(f"in a worktree of {site.checkout}")
    for name, value in _masked(site, asked.preset).items():
        print(f"  {name}={shlex.quote(value)}")
    print(f"on {asked.ranks} of: {', '.join(asked.devices)}")
    print(shlex.join(presets.command(*given, hosts=asked.hosts)))


def _masked(site: Site, preset: presets.Preset) -> dict[str, str]:
    both = {**host.declared_variables(site), **preset.variables}
    return {n: "***" if presets.is_secret(n, value) else value for n, value in sorted(both.items())}


def _written(
    site: Site,
    asked: Asked,
    settings: Sequence[str],
    like: Run | None,
    part: dict[str, Any] | None,
    *,
    trial: bool = False,
) -> Run:
    """Write a run down, all of it or nothing."""
    preset = asked.preset
    after_reboot = _after_reboot(site, preset, part)
    units.ensure(site, after_reboot > 0)
    runs.forget_old(site)
    folder = runs.make(site, preset.name, part.get("run") if part else None)
    overrides = dict(each.split("=", 1) for each in settings)
    known = presets.values(preset, folder, asked.ranks)
    try:
        snapshot = like.code if like else code.snapshot(Path(site.checkout))
        if part and part.get("commit") not in (None, snapshot[0][1]):
            first = part["hosts"][0]
            raise TrainError(
                f"{site.checkout} and that of {first} are at other commits: {host.AGAIN}"
            )
        (folder / "packages.txt").write_text(host.packages(site), encoding="utf-8")
        run = Run(
            folder=folder,
            run=folder.name,
            state="starting",
            host=socket.gethostname(),
            preset=preset.name,
            overrides={**(like.overrides if like else {}), **overrides},
            variables=_masked(site, preset),
            gpus=asked.devices[: asked.ranks],
            nproc=asked.processes,
            commit=snapshot[0][1],
            dirty=any(head != commit for _, head, commit in snapshot),
            versions=host.versions(site),
            stamp=(host.stamp(site) or {}).get("fingerprint"),
            unproven=asked.unproven,
            retries=asked.retries,
            like=like.run if like else None,
            trial=trial,
            across=part["hosts"] if part else None,
            checkpoints=checkpoints.pattern_of(preset, known),
            created=now(),
            spec=preset.as_json(),
            words=[*asked.words],
            code=snapshot,
            part=part,
            devices=asked.devices,
            ranks=asked.ranks,
            queue=asked.queue,
            after_reboot=after_reboot,
        )
        given = (site, preset, folder, asked.ranks, asked.words)
        run.command = presets.command(*given, hosts=asked.hosts)
        run.save()
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            why = f"{error.strerror or error}{host.no_room(error)}"
            raise TrainError(f"the run cannot be written down in {site.runs}: {why}") from None
        raise
    return run


def hand_over(run: Run, before: dict[str, Any] | None) -> None:
    """Start a run's unit; where it does not start, leave things as they were and say why.

    + before: what was written of it; None of a new run
    """
    why = units.start(run.run)
    if why is None:
        return
    try:
        refusal = (run.folder / "refusal").read_text().strip()
    except OSError:
        refusal = ""
    if before is not None:
        files.write(run.folder / "run.json", before)
    elif refusal:
        shutil.rmtree(run.folder, ignore_errors=True)
    see = f"journalctl --user -u {units.unit(run.run)}"
    raise TrainError(refusal or f"the run did not start ({why}): see `{see}`")


def _tell(site: Site, run: Run, what: str) -> None:
    if run.part:
        print(json.dumps({"run": run.run, "port": run.part["port"], "commit": run.commit}))
        return
    now_ = runs.read(run.folder)
    if now_.state == "queued":
        what = waits_for(site, now_)
    print(f"{run.run} {what}")
    if not host.from_controller():
        for words in ("watch", "logs -f", "stop"):
            print(f"  train {words} {run.run}")


def waits_for(site: Site, run: Run) -> str:
    """Return for what a run in the queue waits."""
    held = dict.fromkeys(claims.holders(site, run.devices).values())
    first = claims.ahead(site, run.run)
    count = f"{run.ranks} of {len(run.devices)} GPUs"
    what = "the CPU" if run.devices == [CPU] else count
    taken = f", taken by {', '.join(held)}" if held else ""
    turn = f"; {', '.join(first)} waited before it" if first else ""
    return f"waits for {what}{taken}{turn}"


# -- resume


def resume(
    site: Site, name: str | None, *, dry: bool, hosts: int, gpus: str | None, **more: Any
) -> int:
    """Let a run go on from its newest complete checkpoint."""
    run = runs.chosen(site, name, across=hosts > 1)
    _refuse_damaged(run)
    if dry:
        point = _point(run, hosts)
        if hosts == 1:
            print(f"{run.run} would go on from {point.path}", flush=True)
        _checked(site, run, gpus, **more)
        if hosts > 1:
            told = {"run": run.run, "commit": run.commit, "ranks": run.ranks}
            told |= {"checkpoint": point.path.name, "across": run.across}
            print(json.dumps({**told, "address": several.own_address()}))
        return 0
    point = _point(run, hosts)
    go_on(site, run, gpus, part=several.read_part() if hosts > 1 else None, **more)
    _tell(site, run, f"goes on from {point.path.name}")
    return 0


def _point(run: Run, hosts: int) -> checkpoints.Checkpoint:
    """Return from where a run goes on; raise TrainError with what can be done instead."""
    anew = f"start it anew with `train start --like {run.run}`"
    if run.across and hosts == 1:
        together = ", ".join(run.across)
        raise TrainError(f"run {run.run} is one of {together} together: resume it with --across")
    if hosts > 1 and not run.across:
        raise TrainError(f"run {run.run} is of this host alone: leave out --across")
    if not run.over and not run.waits_for_boot:
        raise TrainError(f"run {run.run} is {run.state}: see `train watch {run.run}`")
    if run.outcome == "finished":
        raise TrainError(f"run {run.run} has finished, nothing of it is left to do: {anew}")
    if not run.settings().resume:
        raise TrainError(f"preset {run.preset} does not say how to resume ('resume'): {anew}")
    point = run.newest()
    if point is None:
        whose = " with the files of all hosts' ranks" if run.across else ""
        what = f"run {run.run} has left no complete checkpoint{whose} at {run.checkpoints}"
        raise TrainError(f"{what}: {anew}")
    return point


def _checked(site: Site, run: Run, gpus: str | None, **more: Any) -> Asked:
    preset = replace(run.settings(), ranks=run.ranks)
    hosts = len(run.across or "1")
    given = {"unproven": run.unproven, **{n: each for n, each in more.items() if each is not None}}
    asked, known = checks.asked(site, preset, run.words, gpus, hosts=hosts, going_on=True, **given)
    checks.refuse(site, asked, known)
    return asked


def go_on(
    site: Site,
    run: Run,
    gpus: str | None = None,
    *,
    part: dict[str, Any] | None = None,
    **more: Any,
) -> None:
    """Start a run again, from its newest complete checkpoint where there is one."""
    with run.locked(".going-on", 0, f"run {run.run} is being resumed already: see `train list`"):
        if not (now_ := runs.read(run.folder)).over and not now_.waits_for_boot:
            raise TrainError(f"run {run.run} is {now_.state}: see `train watch {run.run}`")
        asked = _checked(site, run, gpus, **more)
        after_reboot = _after_reboot(site, run.settings(), part)
        units.ensure(site, after_reboot > 0)
        before = run.as_json()
        run.go_on_from_newest(site)
        run.part, run.devices, run.queue = part, asked.devices, asked.queue
        run.retries = asked.retries if more.get("retries") is not None else run.retries
        run.state, run.waits, run.after_reboot, run.retried = "starting", None, after_reboot, 0
        (run.folder / "refusal").unlink(missing_ok=True)
        run.save()
        hand_over(run, before)


def _after_reboot(site: Site, preset: presets.Preset, part: object) -> float:
    return site.reboot_wait_s if preset.resume_after_reboot and part is None else 0


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
                go_on(site, run, gpus, queue=True)
            except (TrainError, OSError, ValueError, KeyError, TypeError) as error:
                say(f"{run.run}: {error}")
        time.sleep(10)
    return 0


def _refuse_damaged(run: Run) -> None:
    if run.damaged:
        raise TrainError(run.damaged)


# -- stop


def stop(site: Site, name: str | None, *, across: bool = False) -> int:
    """End a run with all that it started; a damaged record keeps nobody from that."""
    run = runs.chosen(site, name, going=True, across=across)
    active = units.active(run.run)
    if run.damaged and not active:
        raise TrainError(run.damaged)
    if across and not run.across and not run.damaged:
        raise TrainError(f"run {run.run} is of this host alone: leave out --across")
    if run.over and not active:
        raise TrainError(f"run {run.run} has ended already: {run.outcome}")
    if run.across and not across:
        others = ", ".join(run.across)
        say(f"warning: {run.run} is one of {others} together, and fails there: see `stop --across`")
    waited = run.state == "waiting"
    if not run.waits_for_boot:
        if sys.stderr.isatty():
            say(f"{run.run} has up to {site.stop_grace_s} s to end by itself ...")
        try:
            units.stop(run.run, site.stop_grace_s + _BESIDE_S)
        except KeyboardInterrupt:
            say(f"\n{run.run} goes on ending: `train list` tells when it has")
            return 130
    became = end(run, host.asked_by())
    if waited and became in ("failed", "lost"):
        became = f"waits no more, and stays {became}"
    print(f"{run.run} {became}")
    return 0


def end(run: Run, who: str) -> str:
    """Write down that a run whose unit was stopped has ended, and by whom; return its outcome."""
    was_on = run.last is not None and run.last.outcome is None
    run = runs.read(run.folder)
    if run.damaged:
        return f"was ended; {run.damaged}"
    if run.last is not None and was_on:
        if run.last.outcome == "lost":  # it did not end by itself, so its supervisor was killed too
            run.last.outcome, run.last.exit = "stopped", -signal.SIGKILL
            run.last.ended = now()
        if run.last.outcome == "stopped":
            run.last.stopped_by = who
    run.state, run.waits, run.after_reboot = "ended", None, 0
    try:
        run.save()
    except OSError as error:
        say(f"warning: this cannot be written in {run.folder} ({error.strerror})")
    killed = run.outcome == "stopped" and run.last and run.last.exit == -signal.SIGKILL
    return f"{run.outcome}, by SIGKILL" if killed else run.outcome


# -- try


def try_presets(
    site: Site, names: Sequence[str], *, settings: Sequence[str], seconds: int, **more: Any
) -> list[dict[str, Any]]:
    """Train a few steps of each preset, and return what became of it."""
    results = []
    for name in dict.fromkeys(names or site.presets):
        found: dict[str, Any] = {"preset": name, "peak_mib": None, "tokens_per_second": None}
        results.append(found)
        try:
            found |= _tried(site, name, settings, seconds, **more)
        except TrainError as error:
            found |= {"outcome": "not tried", "why": str(error)}
    return results


def _tried(
    site: Site, name: str, settings: Sequence[str], seconds: int, **more: Any
) -> dict[str, Any]:
    preset = presets.with_settings(presets.chosen(site, name), settings)
    if not preset.try_with:
        text = "it does not say how it is tried: give it 'try_with', arguments for a few steps"
        return {"outcome": "left out", "why": text}
    few = {**preset.arguments, **preset.try_with}
    preset = replace(preset, arguments=few, checkpoints=None, resume_after_reboot=False)
    asked, known = checks.asked(site, preset, [], more.pop("gpus"), **more)
    checks.refuse(site, asked, known)
    run = _written(site, asked, settings, None, None, trial=True)
    hand_over(run, None)
    say(f"{name}: {run.run} ...")
    until, peak = time.monotonic() + seconds, 0
    while not (run := runs.read(run.folder)).over:
        if site.accelerator != "cpu":
            used = [gpu.used_mib for gpu in host.gpus() if gpu.uuid in run.gpus]
            peak = max([peak, *used])
        if time.monotonic() > until:
            units.stop(run.run, site.stop_grace_s + _BESIDE_S)
            end(run, f"`train try --seconds {seconds}`, whose time was over")
        time.sleep(1)
    return {
        "run": run.run,
        "when": now(),
        "outcome": run.outcome,
        "peak_mib": peak or None,
        "total_mib": min((gpu.total_mib for gpu in known), default=None),
        "tokens_per_second": run.history().last.get("tokens_per_second"),
        "why": None if run.outcome == "finished" else f"see `train why {run.run}`",
    }
