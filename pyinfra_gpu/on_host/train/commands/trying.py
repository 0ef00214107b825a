"""`train try`: a few steps of each preset, and what they took; remembered for start and why."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...smoke import files
from ...terminal import columns, paragraph
from .. import calling, checks, gpus, rundir
from ..errors import TrainError
from ..presets import Preset
from ..rundir import Run
from ..site import Site
from ..table import table
from . import asking, listing, stop, writing

_HEAD = ("preset", "outcome", "peak memory", "tokens/s")
_LOOK_S = 1.0
_LEFT_OUT = "left out"
Tries = dict[str, dict[str, Any]]


def remembered(site: Site) -> Tries:
    """Return preset -> what its last try took; empty where nothing can be read."""
    try:
        document = json.loads((site.runs.parent / "tries.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    good = isinstance(document, dict)
    return {k: v for k, v in document.items() if isinstance(v, dict)} if good else {}


def warnings(site: Site, preset: str) -> list[str]:
    """Return what a try has told against a preset."""
    tried = remembered(site).get(preset, {})
    if tried.get("outcome") not in (None, "finished"):
        return [f"preset {preset} {tried['outcome']} when it was tried, in {tried.get('run')}"]
    return []


def try_presets(site: Site, asked: argparse.Namespace) -> int:
    """Try presets one after the other; return the exit code: 0 where all of them went well.

    One that cannot be tried is left out with the reason, and keeps no other from its try.
    """
    names = asked.presets or asking.declared(site)
    results = [_tried(site, asked, name) for name in dict.fromkeys(names)]
    tries = {each["preset"]: each for each in results if each["run"]}
    if tries:
        try:
            files.write(site.runs.parent / "tries.json", {**remembered(site), **tries})
        except OSError as error:
            print(f"warning: this is not remembered: {error}", file=sys.stderr)
    for line in table(_HEAD, [_row(each) for each in results], columns(), state=1):
        print(line)
    for each in results:
        if each["why"]:
            # A refusal has a line for each thing that is in the way.
            for line in f"{each['preset']}: {calling.said(each['why'])}".splitlines():
                indent = " " * (len(line) - len(line.lstrip()))
                print("\n".join(paragraph(line, indent, f"{indent}  ", width=columns())))
    # Of all presets those that say nothing of a try are left out, and that is no failure.
    meant = [each for each in results if asked.presets or each["outcome"] != _LEFT_OUT]
    return 0 if meant and all(each["outcome"] == "finished" for each in meant) else 1


def _prepared(site: Site, asked: argparse.Namespace, name: str) -> Preset | None:
    """Return a preset with the arguments that make it a few steps; None where it has none.

    Raises TrainError.
    """
    asked.preset, asked.like, asked.retries = name, None, 0
    preset, _ = asking.preset_of(site, asked, None)
    if not preset.try_with:
        return None
    few = {**preset.arguments, **preset.try_with}
    return replace(preset, arguments=few, checkpoints=None, resume_after_reboot=False)


def _tried(site: Site, asked: argparse.Namespace, name: str) -> dict[str, Any]:
    try:
        preset = _prepared(site, asked, name)
        if preset is None:
            return _untried(
                name,
                "it does not say how it is tried: give it 'try_with', the arguments that make it a"
                " few steps",
                _LEFT_OUT,
            )
        wanted, known = asking.wanted(site, asked, preset, ())
        asking.refuse(checks.problems(site, wanted, known))
        run = writing.written(site, wanted, asked.set, None, trial=True)
        writing.hand_over(run, None)
    except TrainError as error:
        return _untried(name, str(error))
    print(f"{preset.name}: {run.name} ...", file=sys.stderr)
    peak = _followed(site, asked, run)
    document = run.settled()
    last = (listing.last_steps(run) or [{}])[-1]
    return {
        "preset": preset.name,
        "run": run.name,
        "when": rundir.now(),
        "outcome": rundir.outcome(document),
        "peak_mib": peak,
        "total_mib": min((gpu.total_mib for gpu in known), default=None),
        "tokens_per_second": last.get("tokens_per_second"),
        "commit": document["commit"],
        "why": _why(run, document),
    }


def _untried(name: str, why: str, outcome: str = "not tried") -> dict[str, Any]:
    """Return the result of a preset that was not tried, and that nothing is remembered of."""
    nothing = dict.fromkeys(("run", "peak_mib", "total_mib", "tokens_per_second"))
    return {"preset": name, "outcome": outcome, "why": why, **nothing}


def _why(run: Run, document: rundir.Document) -> str | None:
    """Return why a try did not finish, and where more is said; None where it did."""
    became = rundir.outcome(document)
    if became == "finished":
        return None
    who = document["attempts"][-1].get("stopped_by") if document["attempts"] else None
    by = f" by {who}" if who else ""
    return f"{became}{by}: see `train why {run.name}`"


def _followed(site: Site, asked: argparse.Namespace, run: Run) -> int | None:
    """Wait until a try has ended, by its limit at the latest; return its GPUs' peak in MiB."""
    until, peak = time.monotonic() + asked.seconds, 0
    while run.settled()["state"] != "ended":
        devices = run.read()["gpus"]
        if site.accelerator != "cpu":
            used = [gpu.used_mib for gpu in gpus.listed() if gpu.uuid in devices]
            peak = max([peak, *used])
        if time.monotonic() > until:
            stop.end(site, run, f"`train try --seconds {asked.seconds}`, whose time was over")
        time.sleep(_LOOK_S)
    return peak or None


def _row(result: Mapping[str, Any]) -> tuple[str, str, str, str]:
    peak, total, speed = (result[name] for name in ("peak_mib", "total_mib", "tokens_per_second"))
    memory = "-" if peak is None else f"{peak / 1024:.1f} of {total / 1024:.1f} GiB"
    return (
        str(result["preset"]),
        str(result["outcome"]),
        memory,
        "-" if speed is None else f"{speed:,.0f}",
    )
