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
from ...terminal import columns
from .. import checks, gpus, rundir, units
from ..errors import TrainError
from ..presets import Preset
from ..rundir import Run
from ..site import Site
from ..table import table
from . import asking, listing, writing

_HEAD = ("preset", "outcome", "peak memory", "tokens/s")
_LOOK_S = 1.0
_BESIDE_S = 60
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
    """Try presets one after the other; return the exit code: 0 where all of them went well."""
    names = asked.presets or asking.declared(site)
    resolved = [_prepared(site, asked, name) for name in names]
    results = [_tried(site, asked, preset) for preset in resolved]
    tries = {**remembered(site), **{each["preset"]: each for each in results}}
    try:
        files.write(site.runs.parent / "tries.json", tries)
    except OSError as error:
        print(f"warning: this is not remembered: {error}", file=sys.stderr)
    for line in table(_HEAD, [_row(each) for each in results], columns(), state=1):
        print(line)
    return 0 if all(each["outcome"] == "finished" for each in results) else 1


def _prepared(site: Site, asked: argparse.Namespace, name: str) -> Preset:
    """Return a preset with the arguments that make it a few steps; raises TrainError."""
    asked.preset, asked.like, asked.retries = name, None, 0
    preset, _ = asking.preset_of(site, asked, None)
    if not preset.try_with:
        raise TrainError(
            f"preset {name} does not say how it is tried: give it 'try_with', the arguments that"
            " make it a few steps"
        )
    few = {**preset.arguments, **preset.try_with}
    return replace(preset, arguments=few, checkpoints=None, resume_after_reboot=False)


def _tried(site: Site, asked: argparse.Namespace, preset: Preset) -> dict[str, Any]:
    wanted, known = asking.wanted(site, asked, preset, ())
    asking.refuse(checks.problems(site, wanted, known))
    run = writing.written(site, wanted, asked.set, None)
    writing.hand_over(run, None)
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
    }


def _followed(site: Site, asked: argparse.Namespace, run: Run) -> int | None:
    """Wait until a try has ended, by its limit at the latest; return its GPUs' peak in MiB."""
    until, peak = time.monotonic() + asked.seconds, 0
    while run.settled()["state"] != "ended":
        devices = run.read()["gpus"]
        if site.accelerator != "cpu":
            used = [gpu.used_mib for gpu in gpus.listed() if gpu.uuid in devices]
            peak = max([peak, *used])
        if time.monotonic() > until:
            units.stop(run.name, site.stop_grace_s + _BESIDE_S)
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
