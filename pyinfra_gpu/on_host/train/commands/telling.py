"""`train watch` and `train why`: how a run goes, and why it went wrong."""

from __future__ import annotations

import argparse
import json

from .. import rundir
from ..record import read_run
from ..site import Site
from ..watch.history import told_steps
from . import trying


def watch(site: Site, asked: argparse.Namespace) -> int:
    """Show a run as it goes; return the exit code."""
    from ..watch import watch as show

    run = rundir.chosen(site, asked.run)
    run.settled()
    return show(run.folder, plain=asked.plain, once=asked.once)


def why(site: Site, asked: argparse.Namespace) -> int:
    """Say why a run failed; return the exit code."""
    from ..advice import next_smaller
    from ..why import why as explain

    run = rundir.chosen(site, asked.run)
    preset = run.settled().get("preset")
    smaller = next_smaller(preset, site.presets, _ran(site)) if isinstance(preset, str) else ""
    explanation = explain(run.folder, smaller_preset=smaller)
    print(json.dumps(explanation.as_json()) if asked.json else explanation.screen())
    return 0


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
