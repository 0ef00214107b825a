"""`train watch` and `train why`: how a run goes, and why it went wrong."""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from dataclasses import replace

from ...terminal import columns
from .. import calling, gpus, resuming, rundir
from ..errors import TrainError
from ..explanation import Explanation
from ..record import read_run
from ..rundir import Document, Run
from ..site import Site
from ..unresolved import unresolved
from ..watch.history import told_steps
from . import queueing, trying


def watch(site: Site, asked: argparse.Namespace) -> int:
    """Show a run as it goes; return the exit code."""
    from ..watch import watch as show

    run = rundir.chosen(site, asked.run)
    run.settled()  # one that is damaged says so
    return show(run.folder, plain=asked.plain, once=asked.once)


def why(site: Site, asked: argparse.Namespace) -> int:
    """Say why a run failed, for None the newest that is wrong; return the exit code."""
    run = rundir.chosen(site, asked.run)
    explanation = _explained(site, run)
    failed = _unresolved(site) if asked.run is None and not explanation.wrong else None
    if failed is not None and failed.name != run.name:
        newer = f"{run.name}, which is newer, is {rundir.outcome(run.settled())}"
        explanation = _explained(site, failed)
        explanation = replace(explanation, facts=(*explanation.facts, newer))
    print(json.dumps(explanation.as_json()) if asked.json else explanation.screen(columns()))
    return 0


def _unresolved(site: Site) -> Run | None:
    """Return the newest failed run that nobody has taken up again."""
    runs = {run.name: run for run in rundir.all_runs(site)}
    documents = []
    for run in runs.values():
        with suppress(TrainError):
            documents.append(run.settled())
    found = unresolved(documents)
    return runs[found[-1]] if found else None


def _explained(site: Site, run: Run) -> Explanation:
    from ..why import why as explain

    document = run.settled()
    queued = queueing.waits_for(site, run) if document["state"] == "queued" else ""
    found = explain(
        run.folder,
        smaller_preset=_smaller(site, run),
        gpus=_gpus(site, run),
        queued=queued,
        others=_others(run, document),
        go_on=_go_on(run, document),
    )
    return replace(found, facts=tuple(map(calling.said, found.facts)))


def _go_on(run: Run, document: Document) -> str:
    """Return from where a run that ended can go on, and by what; empty where it cannot."""
    if document["state"] != "ended":
        return ""
    try:
        point = resuming.newest(run, run.request(), document["created"])
    except (TrainError, OSError, ValueError, KeyError, TypeError):
        return ""
    if point is None:
        return ""
    command = f"`train resume {run.name}`"
    if document.get("across"):
        command = calling.together("resume", rundir.group(run), run.name)
    return calling.said(f"Go on from {point.path.name}: {command}")


def _smaller(site: Site, run: Run) -> str:
    """Return a preset that ran here and needs less than this run, empty where there is none."""
    from ..advice import decisive, next_smaller

    told = read_run(run.folder)
    return next_smaller(told.preset, site.presets, _ran(site), decisive(told)) if told else ""


def _gpus(site: Site, run: Run) -> str:
    """Return the GPUs that a run was given, by index; empty where they are all of the host."""
    if site.accelerator == "cpu":
        return ""
    try:
        known, devices = gpus.listed(), run.request()["devices"]
    except (TrainError, OSError, ValueError, KeyError):
        return ""
    named = [str(gpu.index) for gpu in known if gpu.uuid in devices]
    return ",".join(named) if len(named) < len(known) else ""


def _others(run: Run, document: Document) -> list[str]:
    """Return the hosts that train a run together with this one."""
    own = (run.request().get("across") or {}).get("host")
    return [name for name in document.get("across") or () if name != own]


def _ran(site: Site) -> set[str]:
    """Return the presets that have trained a step here, as they are, and did not fail a try."""
    tried = trying.remembered(site)
    failed = {name for name, each in tried.items() if each.get("outcome") != "finished"}
    found = (read_run(run.folder) for run in rundir.all_runs(site))
    ran = {
        run.preset
        for run in found
        if run is not None and not run.overrides and told_steps(run.folder / "metrics.jsonl")
    }
    return ran - failed
