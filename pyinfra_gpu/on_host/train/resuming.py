"""From where a run goes on: its newest complete checkpoint, and the orders that take it up."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from . import checkpoints, presets
from .checkpoints import Checkpoint
from .rundir import Document, Run
from .running import child
from .site import Site


def newest(run: Run, request: Document, created: str) -> Checkpoint | None:
    """Return the newest complete checkpoint of a run; None where there is none to go on from.

    + created: when the run began, as its document has it; what is older is another run's
    """
    if not presets.from_json(request["preset"]).resume:
        return None
    return last_complete(request, run.folder, created)


def last_complete(request: Document, folder: Path, created: str) -> Checkpoint | None:
    """Return the newest complete checkpoint of a run, whether or not it can go on from there.

    + folder: the run's; created: as with `newest`
    """
    preset = presets.from_json(request["preset"])
    ranks = int(request["ranks"])
    values = child.values(folder, preset, ranks)
    since = datetime.fromisoformat(created).timestamp()
    # Of several hosts all ranks leave their files in one folder, which the hosts share: which
    # ranks a host gets is settled anew at each start.
    return checkpoints.newest(preset, values, preset.processes(ranks) * _hosts(request), since)


def orders(site: Site, run: Run, request: Document, point: Checkpoint | None) -> Document:
    """Return the supervisor's orders to go on from a checkpoint, from the beginning for None."""
    preset, ranks = presets.from_json(request["preset"]), int(request["ranks"])
    resumed = {"checkpoint": str(point.path), "step": point.step} if point else None
    further = tuple(request["words"])
    program = child.words(site, run.folder, preset, ranks, further, resumed)
    return {
        **request,
        "command": child.command(site, preset, ranks, program, _hosts(request)),
        "resumed_from": str(point.path) if point else None,
    }


def _hosts(request: Document) -> int:
    """Return how many hosts train it together."""
    told = request.get("across")
    return len(told["hosts"]) if told else 1
