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
from .host import CPU, Site, TrainError, now
from .presets import Preset
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
    **more: Any,
) -> int:
    """Check everything, write the run down, start it, and leave it to itself."""
    repeated = runs.whole(runs.chosen(site, like)) if like else None
    if repeated is None:
        chosen = presets.chosen(site, preset)
    else:
        if repeated.across and not more["part"]:
            of = f"run {repeated.run} is of {', '.join(repeated.across)} together"
            raise TrainError(f"{of}: repeat it with --across")
        chosen, words = repeated.settings(), words or repeated.words
    chosen = presets.with_settings(chosen, settings)
    run = _planned(site, chosen, words, settings, like=repeated, **more)
    if dry and not presets.secret_in(words):
        _show(site, run)
    checks.refuse(site, run)
    for text in checks.warnings(site, run):
        say(f"warning: {text}")
    if dry:
        if run.across:
            commit = repeated.commit if repeated else code.head(Path(site.checkout))
            name = runs.new_name(chosen.name)
            print(
                json.dumps({"name": name, "ranks": run.ranks, "commit": commit} | several.place())
            )
        return 0
    _write(site, run, repeated)
    hand_over(run, None)
    _tell(site, run, f"started, {run.nproc} rank{'' if run.nproc == 1 else 's'}")
    return 0


def _planned(
    site: Site,
    preset: Preset,
    words: Sequence[str],
    settings: Sequence[str],
    *,
    gpus: str | None,
    like: Run | None = None,
    part: dict[str, Any] | None = None,
    **more: Any,
) -> Run:
    """Return a run that is not written down: it has no folder and no name yet."""
    devices, ranks = checks.devices(site, preset, gpus)
    overrides = dict(each.split("=", 1) for each in settings)
    return Run(
        folder=site.runs / "RUN",
        run="RUN",
        state="starting",
        host=socket.gethostname(),
        preset=preset.name,
        spec=preset.as_json(),
        words=[*words],
        overrides={**(like.overrides if like else {}), **overrides},
        variables=_masked(site, preset),
        devices=devices,
        ranks=ranks,
        nproc=preset.processes(ranks),
        gpus=devices[:ranks],
        like=like.run if like else None,
        part=part,
        across=part["hosts"] if part else None,
        **more,
    )


def _masked(site: Site, preset: Preset) -> dict[str, str]:
    try:
        both = {**host.declared_variables(site), **preset.variables}
    except TrainError:
        return {}  # which is refused
    return {n: "***" if presets.is_secret(n, value) else value for n, value in sorted(both.items())}


def _show(site: Site, run: Run) -> None:
    run.begin_from(site, None)
    print(f"in a worktree of {site.checkout}")
    for name, value in run.variables.items():
        print(f"  {name}={shlex.quote(value)}")
    print(f"on {run.ranks} of: {', '.join(run.devices)}")
    print(shlex.join(run.command))


def _write(site: Site, run: Run, like: Run | None) -> None:
    """Write a run down, all of it or nothing."""
    run.after_reboot = _after_reboot(site, run)
    units.ensure(site, run.after_reboot > 0)
    runs.forget_old(site)
    given = run.part["run"] if run.part else None
    run.folder = runs.make(site, given or runs.new_name(str(run.preset)), exactly=given is not None)
    run.run, run.created = run.folder.name, now()
    try:
        run.code = like.code if like else code.snapshot(Path(site.checkout))
        run.commit = run.code[0][1]
        run.dirty = any(head != commit for _, head, commit in run.code)
        run.versions, run.stamp = host.versions(site), (host.stamp(site) or {}).get("fingerprint")
        run.checkpoints = checkpoints.pattern_of(run.settings(), run.places())
        (run.folder / "packages.txt").write_text(host.packages(site), encoding="utf-8")
        run.begin_from(site, None)
        run.save()
    except BaseException as error:
        shutil.rmtree(run.folder, ignore_errors=True)
        if isinstance(error, OSError):
            why = f"{error.strerror or error}{host.no_room(error)}"
            raise TrainError(f"the run cannot be written down in {site.runs}: {why}") from None
        raise


def _after_reboot(site: Site, run: Run) -> float:
    return site.reboot_wait_s if run.settings().resume_after_reboot and not run.across else 0


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
    first = claims.ahead(run.run)
    what = "the CPU" if run.devices == [CPU] else f"{run.ranks} of {len(run.devices)} GPUs"
    taken = f", taken by {', '.join(held)}" if held else ""
    turn = f"; {', '.join(first)} waited before it" if first else ""
    return f"waits for {what}{taken}{turn}"


# -- resume


def resume(
    site: Site, name: str | None, *, dry: bool, part: dict[str, Any] | None, **more: Any
) -> int:
    """Let a run go on from its newest complete checkpoint."""
    run = runs.whole(runs.chosen(site, name, across=part is not None))
    point = _point(run, part)
    if not dry:
        run = go_on(site, run, point, part=part, **more)
        _tell(site, run, f"resumes from {point.path.name}")
        return 0
    if not part:
        print(f"{run.run} would go on from {point.path}", flush=True)
    checks.refuse(site, _asked(site, run, part, **more))
    if part:
        told = {"run": run.run, "commit": run.commit, "ranks": run.ranks}
        told |= {"checkpoint": point.path.name, "across": run.across}
        print(json.dumps(told | several.place()))
    return 0


def _point(run: Run, part: object) -> checkpoints.Checkpoint:
    """Return from where a run goes on; raise TrainError with what can be done instead."""
    anew = f"start it anew with `train start --like {run.run}`"
    if run.across and not part:
        together = ", ".join(run.across)
        raise TrainError(f"run {run.run} is one of {together} together: resume it with --across")
    if part and not run.across:
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


def _asked(site: Site, run: Run, part: dict[str, Any] | None, gpus: str | None, **more: Any) -> Run:
    """Return the run as it would go on."""
    devices, _ = checks.devices(site, replace(run.settings(), ranks=run.ranks), gpus)
    given = {name: each for name, each in more.items() if each is not None}
    return replace(run, devices=devices, part=part, **given)


def go_on(
    site: Site,
    run: Run,
    point: checkpoints.Checkpoint | None,
    *,
    part: dict[str, Any] | None = None,
    **more: Any,
) -> Run:
    """Start a run again, from a checkpoint or the beginning."""
    with run.locked(".going-on", 0, f"run {run.run} is being resumed already: see `train list`"):
        as_it_is = runs.read(run.folder)
        if not as_it_is.over and not as_it_is.waits_for_boot:
            raise TrainError(f"run {run.run} is {as_it_is.state}: see `train watch {run.run}`")
        asked = _asked(site, run, part, **more)
        checks.refuse(site, asked)
        before = run.as_json()
        asked.state, asked.waits, asked.retried = "starting", None, 0
        asked.after_reboot = _after_reboot(site, run)
        units.ensure(site, asked.after_reboot > 0)
        asked.begin_from(site, point)
        (run.folder / "refusal").unlink(missing_ok=True)
        asked.save()
        hand_over(asked, before)
    return asked


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
            say(f"\n{run.run} is still shutting down: `train list` shows when it has ended")
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
    run = _planned(site, preset, [], settings, trial=True, **more)
    checks.refuse(site, run)
    _write(site, run, None)
    hand_over(run, None)
    say(f"{name}: {run.run} ...")
    until, peak, total = time.monotonic() + seconds, 0, None
    while not (run := runs.read(run.folder)).over:
        if site.accelerator != "cpu":
            own = [gpu for gpu in host.gpus() if gpu.uuid in run.gpus]
            peak = max([peak, *(gpu.used_mib for gpu in own)])
            total = min((gpu.total_mib for gpu in own), default=total)
        if time.monotonic() > until:
            units.stop(run.run, site.stop_grace_s + _BESIDE_S)
            end(run, f"`train try --seconds {seconds}`, whose time was over")
        time.sleep(1)
    return {
        "run": run.run,
        "outcome": run.outcome,
        "peak_mib": peak or None,
        "total_mib": total,
        "tokens_per_second": run.history().last.get("tokens_per_second"),
        "why": None if run.outcome == "finished" else f"see `train why {run.run}`",
    }
