"""The result of a run: a table for the terminal, JSON for programs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pyinfra import context
from pyinfra.api.state import StateStage

from pyinfra_gpu.diagnosis.explained import Explained
from pyinfra_gpu.drift.finding import Id, Stage
from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.journal import Entry, Journal
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.report.plain import finding_as_json, versions
from pyinfra_gpu.report.smoke import last_smoke
from pyinfra_gpu.report.table import render
from pyinfra_gpu.text import columns, shortened

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

REPORT_VARIABLE = "PYINFRA_GPU_REPORT"
"""Environment variable naming a file that gets the run's result as JSON."""

_LONGEST_REASON = 200  # characters
_ORDER = {str(stage): place for place, stage in enumerate(Stage)}


def attach() -> None:
    """Collect what this run finds and changes, and report it when the last host is left."""
    journal.attach(_finish)


def plan() -> None:
    """Show the plan once every host has been probed, before pyinfra asks whether to act.

    To be called at the end of a deploy file, which pyinfra executes once for each host. With
    ``-y`` there is no plan.
    """
    state, book = context.state, journal.current()
    if book is None:
        return
    book.planned.add(context.host.name)
    if state.check_for_changes and book.planned >= {host.name for host in state.active_hosts}:
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
    text = render(result, book.verdicts, book.across, whole=whole, width=columns())
    click.echo("\n" + text, err=True)


def as_json(state: State, book: Journal) -> dict[str, Any]:
    """Return the run's result as plain data.

    ``hosts`` maps each host of the run to its stages, its smoke test's verdict, and its status:
    ``as declared``, ``left alone`` (not as declared, and a deploy does nothing about it),
    ``changed``, ``failed``, ``unreachable``, ``cut off``, ``not looked at``; in a dry run
    ``differs``. A stage's ``changed`` is what was completed, ``unfinished`` what was to be done
    where the run failed, was refused or was cut off. ``smoke`` is the verdict that is valid for
    what is installed, a failed test's with its ``diagnosis``; ``smoke_across`` is what is known of
    the multi-node step, ``facts`` are the versions before the run.
    """
    dry = state.current_stage < StateStage.Execute
    hosts = {}
    for host in filter(state.is_host_in_limit, state.inventory):
        try:
            hosts[host.name] = _host_as_json(state, book, host, dry=dry)
        except Exception as error:  # what a host told must not keep the others' report away
            why = shortened(f"{type(error).__name__}: {error}", _LONGEST_REASON)
            broken = Entry(host.name, "report", problem=f"{host.name}: its report failed ({why})")
            hosts[host.name] = _answer("failed", [_stage(broken, ended=False)])
    return {"schema_version": 1, "dry": dry, "hosts": hosts}


def _answer(status: str, stages: list[dict[str, Any]], **known: Any) -> dict[str, Any]:
    empty = {"rehearsal": False, "facts": {}, "smoke": None, "smoke_across": None}
    return {"status": status, "stages": stages, **empty, **known}


def _host_as_json(state: State, book: Journal, host: Host, *, dry: bool) -> dict[str, Any]:
    # What one stage brought beforehand for another is noted there before its turn.
    entries = sorted(book.of(host.name), key=lambda entry: _ORDER.get(entry.stage, len(_ORDER)))
    look = book.looks.get(host.name)
    status = _status(state, book, host, entries, dry=dry)
    if status == "not looked at":
        entries = []  # what was begun there says nothing of the host
    # Of a host that preflight refused, some later stages are judged too, and none is begun.
    refused = bool(entries and entries[0].stage == Stage.PREFLIGHT and entries[0].problem)
    cut = entries[-1:] if status == "cut off" else []
    ended = [not (each.problem or refused or each in cut) for each in entries]
    smoke = book.verdicts.get(host.name) or _still_good(entries, last_smoke(look))
    across = book.across.get(host.name)
    return _answer(
        status,
        [_stage(entry, ended=done) for entry, done in zip(entries, ended, strict=True)],
        rehearsal=bool(host.data.get("rehearsal", False)),
        smoke=smoke.as_json() if smoke else None,
        smoke_across=across.as_json() if across else None,
        facts=versions(look) if look else {},
    )


def _still_good(entries: list[Entry], last: Explained | Unknown | None) -> Explained | None:
    """Return the verdict that the host had already, where the stage found it to hold."""
    smoke = next((each for each in entries if each.stage == Stage.SMOKE), None)
    if smoke is None or smoke.problem or isinstance(last, Unknown):
        return None
    return None if {each.id for each in smoke.findings} - {Id.SMOKE_UNPROVEN_ACROSS_HOSTS} else last


def _status(state: State, book: Journal, host: Host, entries: list[Entry], *, dry: bool) -> str:
    if host not in state.activated_hosts:
        return "unreachable"
    if host in state.failed_hosts or any(entry.problem for entry in entries):
        return "failed"
    if state.current_stage == StateStage.Execute:  # pyinfra never came to its results
        return "cut off"
    if book.interrupted and host.name not in book.planned:
        return "cut off" if host.name in book.looks else "not looked at"
    if any(entry.actions for entry in entries):
        return "differs" if dry else "changed"
    if any(each.effect == "report" for entry in entries for each in entry.findings):
        return "left alone"
    return "as declared" if entries else "not looked at"


def _stage(entry: Entry, *, ended: bool) -> dict[str, Any]:
    """Return what is reported of a stage; how much of an unfinished one was done is not known."""
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
