"""`train list`: every run, what became of it, and what it said last."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ...terminal import columns, paragraph
from .. import calling, unwritten, words
from ..errors import TrainError
from ..reading.stall import stalled
from ..rundir import Document, Run, all_runs, begin_one, outcome
from ..site import Site
from ..table import table
from ..unresolved import unresolved
from ..watch.history import sampled_losses

_TAIL = 64 << 10  # bytes of metrics that are read: the last steps
_SHOWN = 20
_CURVES, _POINTS = 5, 120
"""Of the last so many runs, so many points: a page shows no more."""


def show(site: Site, *, as_json: bool, everything: bool, curves: bool = False) -> int:
    """Print the runs, the newest last; return the exit code.

    + curves: add the curve of each run's loss to the document, as few points
    """
    runs = all_runs(site)
    told = _all_told(runs, everything)
    if curves:
        for each in told[-_CURVES:]:
            each["losses"] = _curve(site.runs / str(each["run"]))
    if as_json:
        print(json.dumps({"schema": 1, "runs": told}))
        return 0
    if not told:
        print(calling.said(f"there is no run yet: {begin_one(site)}"))
        return 0
    for line in table(_HEAD, [_row(each) for each in told], columns(), state=1):
        print(line)
    for odd in filter(None, (_odd(site, each) for each in told)):
        for line in paragraph(calling.said(odd), width=columns()):
            print(line)
    if len(told) < len(runs):
        more = len(runs) - len(told)
        print(calling.said(f"{more} older {'one' if more == 1 else 'ones'}: `train list --all`"))
    return 0


_NOTHING_KNOWN: dict[str, Any] = {
    "state": "damaged",
    "preset": None,
    "created": "",
    "gpus": [],
    "attempts": [],
    "last": None,
    "stalled_seconds": None,
}
_HEAD = ("run", "state", "step", "loss", "on", "began")


def _odd(site: Site, told: Document) -> str | None:
    """Return what is wrong with a run's record; None where nothing is."""
    if "damaged" in told:
        return str(told["damaged"])
    if unwritten.kept(site.runs / str(told["run"])):
        return f"{told['run']} ended; {unwritten.TOLD}"
    return None


def _all_told(runs: Sequence[Run], everything: bool) -> list[Document]:
    documents = {run: _document(run) for run in runs}
    failed = {*unresolved([*documents.values()])}
    shown = runs if everything else _last(documents, failed)
    told = [_told(run, documents[run]) for run in shown]
    for each in told:
        each["outcome"] = "stalled" if each["stalled_seconds"] else outcome(each)
        each["unresolved"] = each["run"] in failed
    return told


def _last(documents: Mapping[Run, Document], failed: Container[str]) -> list[Run]:
    """Return the last runs, and those before them that have not ended, or failed unresolved."""
    runs = [*documents]
    return [
        run
        for run in runs[:-_SHOWN]
        if documents[run]["state"] not in ("ended", "damaged") or run.name in failed
    ] + runs[-_SHOWN:]


def _document(run: Run) -> Document:
    try:
        return run.settled()
    except TrainError as error:
        # It is there all the same, and may have a GPU: whoever looks for it has to see it.
        return {**_NOTHING_KNOWN, "run": run.name, "damaged": str(error)}


def _told(run: Run, document: Document) -> Document:
    if "damaged" in document:
        return document
    number = document["attempts"][-1]["number"] if document["attempts"] else 1
    # What an earlier attempt reached this one has not: it began from a checkpoint before that.
    steps = [each for each in last_steps(run) if each.get("attempt", number) == number]
    on = document["state"] == "running"
    times = [moment for each in steps if (moment := _moment(each.get("time"))) is not None]
    document["last"] = steps[-1] if steps else None
    document["stalled_seconds"] = stalled(times, time.time()) if on else None
    return document


def _curve(folder: Path) -> list[float]:
    losses = sampled_losses(folder / "metrics.jsonl", _POINTS)
    return [float(f"{value:.6g}") for value in losses]


def last_steps(run: Run) -> list[dict[str, Any]]:
    """Return the last steps that were told, the newest last."""
    try:
        with (run.folder / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read(_TAIL).splitlines()
    except OSError:
        return []
    steps = []
    for line in lines:
        try:
            step = json.loads(line)
        except ValueError:
            continue
        if isinstance(step, dict):
            steps.append(step)
    return steps


def _moment(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None


def _row(told: dict[str, Any]) -> tuple[str, ...]:
    last = told["last"] or {}
    state = outcome(told)
    if len(told["attempts"]) > 1 and told["state"] == "running":
        state += f", attempt {len(told['attempts'])}"
    if told.get("trial") is True:
        state += ", a try"
    if told["stalled_seconds"]:
        state = f"stalled {told['stalled_seconds'] / 60:.0f} min"
    step, steps = last.get("step"), last.get("steps")
    gpus = told.get("gpus") or ()
    on = "CPU" if gpus == ["cpu"] else f"{len(gpus)} GPU" if gpus else "-"
    return (
        str(told["run"]),
        state,
        "-" if step is None else f"{step}/{steps}" if steps else str(step),
        _loss(last),
        on,
        str(told.get("created", ""))[:16].replace("T", " "),
    )


def _loss(last: Mapping[str, Any]) -> str:
    if word := last.get("not_finite"):
        return words.no_number(str(word))
    return "-" if (value := last.get("loss")) is None else words.loss(value)


def log_path(run: Run, rank: int | None, attempt: int | None) -> Path:
    """Return one rank's log, or torchrun's own for None, of the last attempt; raises TrainError."""
    document = run.settled()
    if not document["attempts"]:
        raise TrainError(f"run {run.name} is {outcome(document)}: it has no logs yet")
    numbers = [each["number"] for each in document["attempts"]]
    number = numbers[-1] if attempt is None else attempt
    if number not in numbers:
        known = _span(numbers[0], numbers[-1])
        raise TrainError(f"run {run.name} has no attempt {number}: its attempts are {known}")
    name = "launcher.log" if rank is None else f"rank{rank}.log"
    path = run.attempt(number) / name
    if not path.exists() and rank is not None and not 0 <= rank < document["nproc"]:
        known = _span(0, document["nproc"] - 1)
        raise TrainError(f"run {run.name} has no rank {rank}: its ranks are {known}")
    return path


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"
