"""The verdict of a run: a table for the terminal, JSON for programs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pyinfra import context
from pyinfra.api.state import StateStage

from pyinfra_gpu.diagnosis.explained import Explained, explained
from pyinfra_gpu.drift.concern import history_of
from pyinfra_gpu.drift.finding import Id, Stage
from pyinfra_gpu.drift.history import as_since
from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.journal import Entry, Journal
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.verdict import AcrossStamp, Verdict
from pyinfra_gpu.report.plain import finding_as_json
from pyinfra_gpu.report.table import render
from pyinfra_gpu.report.versions import versions
from pyinfra_gpu.text import shortened

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record

REPORT_VARIABLE = "PYINFRA_GPU_REPORT"
"""Environment variable naming a file that gets the run's verdict as JSON."""

_LONGEST_REASON = 200  # characters
_ORDER = {str(stage): place for place, stage in enumerate(Stage)}
RECENT = 40
"""So many of the latest changes of packages are reported for each host."""


def attach() -> None:
    """Collect what this run finds and changes, and report it when the last host is left."""
    journal.attach(_finish)


def plan() -> None:
    """Show the plan once every host has been looked at, before pyinfra asks whether to act.

    To be called at the end of a deploy file, which pyinfra executes once for each host. With
    ``-y`` there is no plan.
    """
    state, book = context.state, journal.current()
    if book is None:
        return
    book.planned.add(context.host.name)
    if not state.check_for_changes or len(book.planned) < len(state.active_hosts):
        return
    if book.planned >= {host.name for host in state.active_hosts}:
        book.plan_shown = True
        _show(state, book, as_json(state, book))


def _finish(state: State, book: Journal) -> None:
    result = as_json(state, book)
    if not (book.plan_shown and result["dry"]):
        _show(state, book, result)
    if path := os.environ.get(REPORT_VARIABLE):
        Path(path).write_text(json.dumps(result, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _show(state: State, book: Journal, result: dict[str, Any]) -> None:
    whole = state.print_noop_info  # -v
    click.echo("\n" + render(result, book.verdicts, book.across, whole=whole), err=True)


def as_json(state: State, book: Journal) -> dict[str, Any]:
    """Return the run's verdict as plain data.

    ``hosts`` maps each host of the run to its stages, its smoke test's verdict, and its status:
    ``as declared``, ``changed``, ``failed``, ``unreachable``, ``cut off``, ``not looked at``; in
    a dry run ``differs``. A stage's ``changed`` is what came to its end, ``unfinished`` what was
    to be done where it failed or the run was cut off. ``complete`` tells whether the deploy file
    was gone through to its end; ``last_smoke`` is the verdict that the first look found
    (``{"unknown": reason}`` where it cannot be read), which ``smoke`` holds only while it is good;
    the verdict of a test that failed in this run has its ``diagnosis``. ``smoke_across`` is what
    is known of the step across hosts. ``facts`` are the versions at the first look, ``history`` is
    what happened to packages lately.
    """
    dry = state.current_stage == StateStage.Prepare or not _executed(state)
    hosts = {}
    for host in state.inventory:
        if not state.is_host_in_limit(host):
            continue
        try:
            hosts[host.name] = _host_as_json(state, book, host, dry=dry)
        except Exception as error:  # what a host told must not keep the others' report away
            hosts[host.name] = _not_told(host.name, error)
    return {"schema_version": 1, "dry": dry, "hosts": hosts}


def _host_as_json(state: State, book: Journal, host: Host, *, dry: bool) -> dict[str, Any]:
    # What one stage brought beforehand for another is noted there before its turn.
    entries = sorted(book.of(host.name), key=lambda entry: _ORDER.get(entry.stage, len(_ORDER)))
    look = book.looks.get(host.name)
    changes = () if look is None else history_of(look)
    status = _status(state, book, host, entries, dry=dry)
    if status == "not looked at":
        entries = []  # what was begun there says nothing of the host
    return {
        "status": status,
        "complete": host.name in book.planned,
        "rehearsal": bool(host.data.get("rehearsal", False)),
        "stages": [
            _stage(entry, cut=status == "cut off" and entry is entries[-1]) for entry in entries
        ],
        "smoke": _as_json(book.verdicts.get(host.name) or _still_good(entries, look)),
        "smoke_across": _as_json(book.across.get(host.name)),
        "last_smoke": _as_json(last_smoke(look)),
        "facts": versions(look) if look else {},
        "history": [as_since(each) for each in changes[-RECENT:]],
    }


def _not_told(host: str, error: Exception) -> dict[str, Any]:
    """Return what is reported of a host whose report broke, and why, in one sentence."""
    why = shortened(f"{type(error).__name__}: {error}", _LONGEST_REASON)
    return {
        "status": "failed",
        "complete": False,
        "rehearsal": False,
        "stages": [_stage(Entry(host=host, stage="report", problem=f"{host}: no report ({why})"))],
        "smoke": None,
        "smoke_across": None,
        "last_smoke": None,
        "facts": {},
        "history": [],
    }


def _still_good(entries: list[Entry], look: Record | None) -> Explained | None:
    """Return the verdict that the host had already, where the stage found it to hold."""
    smoke = next((each for each in entries if each.stage == Stage.SMOKE), None)
    ids = {each.id for each in smoke.findings} if smoke else set()
    if smoke is None or smoke.problem or ids - {Id.SMOKE_UNPROVEN_ACROSS_HOSTS}:
        return None
    found = last_smoke(look)
    return found if isinstance(found, Explained) else None


def _as_json(value: Explained | AcrossStamp | Unknown | None) -> dict[str, Any] | None:
    if value is None:
        return None
    return value.to_json() if isinstance(value, Unknown) else value.as_json()


def last_smoke(look: Record | None) -> Explained | Unknown | None:
    """Return the verdict that a look found, that of a failed test with its diagnosis."""
    if look is None:
        return None
    found = look.smoke.verdict
    return explained(found, look) if isinstance(found, Verdict) else found


def _executed(state: State) -> bool:
    return state.current_stage >= StateStage.Execute


def _status(state: State, book: Journal, host: Host, entries: list[Entry], *, dry: bool) -> str:
    name = host.name
    if host not in state.activated_hosts:
        return "unreachable"
    if host in state.failed_hosts or any(entry.problem for entry in entries):
        return "failed"
    if state.current_stage == StateStage.Execute:  # pyinfra never came to its results
        return "cut off"
    if book.interrupted and name not in book.planned:
        return "cut off" if name in book.looks else "not looked at"
    if any(entry.actions for entry in entries):
        return "differs" if dry else "changed"
    return "as declared" if entries else "not looked at"


def _stage(entry: Entry, *, cut: bool = False) -> dict[str, Any]:
    """Return what is reported of a stage.

    + cut: whether the run was cut off in it

    Only what came to its end counts as changed; how much of the rest was done is not known.
    """
    ended = not entry.problem and not cut
    return {
        "stage": entry.stage,
        "found": entry.found,
        "changed": entry.actions if ended else [],
        "unfinished": [] if ended else entry.actions,
        "warnings": entry.warnings,
        "deviations": [finding_as_json(each) for each in entry.findings],
        "problem": entry.problem,
        "unreadable": entry.unreadable,
        "seconds": round(entry.seconds, 2),
    }
