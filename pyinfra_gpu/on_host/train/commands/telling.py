"""`train watch` and `train why`: how a run goes, and why it went wrong."""

from __future__ import annotations

import argparse
import json

from .. import rundir
from ..site import Site
from . import trying


def watch(site: Site, asked: argparse.Namespace) -> int:
    """Show a run as it goes; return the exit code."""
    from ..watch import watch as show

    run = rundir.chosen(site, asked.run)
    run.settled()
    return show(run.folder, plain=asked.plain, once=asked.once)


def why(site: Site, asked: argparse.Namespace) -> int:
    """Say why a run failed; return the exit code."""
    from ..why import why as explain

    run = rundir.chosen(site, asked.run)
    document = run.settled()
    fits = trying.smaller(trying.remembered(site), str(document["preset"]))
    explanation = explain(run.folder, smaller_preset=fits)
    print(json.dumps(explanation.as_json()) if asked.json else explanation.screen())
    return 0
