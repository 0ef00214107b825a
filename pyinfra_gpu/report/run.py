"""The verdict of a run: a table for the terminal, JSON for programs."""

from __future__ import annotations

import json
import os
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pyinfra import context
from pyinfra.api.state import StateStage

from pyinfra_gpu.diagnosis import evidence as smoke_evidence
from pyinfra_gpu.drift.finding import Id, Stage
from pyinfra_gpu.drift.history import as_since
from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.journal import Entry, Journal
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.report import smoke as smoke_report
from pyinfra_gpu.report.plain import finding_as_json
from pyinfra_gpu.report.versions import versions

if TYPE_CHECKING:
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record

WIDTH = 80
REPORT_VARIABLE = "PYINFRA_GPU_REPORT"
"""Environment variable naming a file that gets the run's verdict as JSON."""

RECENT = 40
"""So many of the latest changes of packages are reported for each host."""

_COLUMNS = (("host", 8), ("stage", 11), ("found", 27), ("changed", 24), ("s", 6))


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
    if state.check_for_changes and book.planned >= {host.name for host in state.active_hosts}:
        book.plan_shown = True
        click.echo("\n" + render(as_json(state, book)), err=True)


def _finish(state: State, book: Journal) -> None:
    result = as_json(state, book)
    if not (book.plan_shown and result["dry"]):
        click.echo("\n" + render(result), err=True)
    if path := os.environ.get(REPORT_VARIABLE):
        Path(path).write_text(json.dumps(result, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def as_json(state: State, book: Journal) -> dict[str, Any]:
    """Return the run's verdict as plain data.

    ``hosts`` maps each host of the run to its stages, its smoke test's verdict, and its status:
    ``as declared``, ``changed``, ``failed``, ``unreachable``, ``cut off``, ``not looked at``; in
    a dry run ``differs``. ``complete`` tells whether the deploy file was gone through to its end;
    ``last_smoke`` is the verdict that the first look found, which ``smoke`` holds only while it is
    good; the verdict of a test that failed in this run has its ``diagnosis``. ``smoke_across`` is
    what is known of the step across hosts. ``facts`` are the versions at the first look,
    ``history`` is what happened to packages lately.
    """
    dry = state.current_stage == StateStage.Prepare or not _executed(state)
    hosts = {}
    for host in state.inventory:
        if not state.is_host_in_limit(host):
            continue
        entries = [entry for (name, _), entry in book.entries.items() if name == host.name]
        look = book.looks.get(host.name)
        changes = (
            () if look is None or isinstance(look.nvidia.history, Unknown) else look.nvidia.history
        )
        hosts[host.name] = {
            "status": _status(state, host.name, entries, dry=dry),
            "complete": host.name in book.planned,
            "rehearsal": bool(host.data.get("rehearsal", False)),
            "stages": [_stage(entry) for entry in entries],
            "smoke": book.verdicts.get(host.name) or _still_good(entries, look),
            "smoke_across": book.across.get(host.name),
            "last_smoke": last_smoke(look),
            "facts": versions(look) if look else {},
            "history": [as_since(each) for each in changes[-RECENT:]],
        }
    return {"schema_version": 1, "dry": dry, "hosts": hosts}


def _still_good(entries: list[Entry], look: Record | None) -> dict[str, Any] | None:
    """Return the verdict that the host had already, where the stage found it to hold."""
    smoke = next((each for each in entries if each.stage == Stage.SMOKE), None)
    ids = {each.id for each in smoke.findings} if smoke else set()
    if smoke is None or smoke.problem or ids - {Id.SMOKE_UNPROVEN_ACROSS_HOSTS}:
        return None
    return last_smoke(look)


def last_smoke(look: Record | None) -> dict[str, Any] | None:
    """Return the verdict that a look found on the host, a failed one with its diagnosis."""
    try:
        value = json.loads(str(look.smoke.verdict_text)) if look else None
    except ValueError:
        return None  # none was written, or only half of one
    if look is None or not isinstance(value, dict):
        return None
    return smoke_evidence.explained(value, look) if value.get("status") == "fail" else value


def _executed(state: State) -> bool:
    return state.current_stage >= StateStage.Execute


def _status(state: State, name: str, entries: list[Entry], *, dry: bool) -> str:
    if name not in {host.name for host in state.activated_hosts}:
        return "unreachable"
    failed = {host.name for host in state.failed_hosts}
    if name in failed or any(entry.problem for entry in entries):
        return "failed"
    if state.current_stage == StateStage.Execute:  # pyinfra never came to its results
        return "cut off"
    if any(entry.changed for entry in entries):
        return "differs" if dry else "changed"
    return "as declared" if entries else "not looked at"


def _stage(entry: Entry) -> dict[str, Any]:
    return {
        "stage": entry.stage,
        "found": entry.found,
        "changed": entry.changed,
        "warnings": entry.warnings,
        "deviations": [finding_as_json(each) for each in entry.findings],
        "problem": entry.problem,
        "unreadable": entry.unreadable,
        "seconds": round(entry.seconds, 2),
    }


def render(result: dict[str, Any]) -> str:
    """Return the table, the smoke test's figures and what needs attention, 80 columns wide."""
    lines = _table(result)
    for name, host in result["hosts"].items():
        if shown := smoke_report.lines(name, host["smoke"]):
            lines += ["", *shown]
    across = {name: host.get("smoke_across") for name, host in result["hosts"].items()}
    lines += smoke_report.across_lines(across)
    lines += _attention(result)
    lines += ["", _summary(result)]
    return "\n".join(lines)


def _table(result: dict[str, Any]) -> list[str]:
    titles = [name for name, _ in _COLUMNS]
    if result["dry"]:
        titles[3] = "would change"
    lines = [_row(titles), _row(["-" * width for _, width in _COLUMNS])]
    for name, host in result["hosts"].items():
        shown = name
        for stage in host["stages"]:
            found = _brief(stage["found"], "; ") or "as declared"
            did = _brief(stage["changed"], ", ") or "-"
            if stage["problem"]:
                did = "REFUSED" if result["dry"] else "FAILED"
            elif host["status"] == "cut off" and stage is host["stages"][-1]:
                did = "CUT OFF"
            lines.append(_row([shown, stage["stage"], found, did, f"{stage['seconds']:.1f}"]))
            shown = ""
        if not host["stages"]:
            lines.append(_row([name, "connect", host["status"], "-", ""]))
    return lines


def _brief(texts: list[str], separator: str, most: int = 3) -> str:
    """Join texts for a cell of the table; a bare host would fill a screen. `check` tells all."""
    more = len(texts) - most
    shown = texts if more <= 1 else [*texts[:most], f"and {more} more"]
    return separator.join(shown)


class _Cell(textwrap.TextWrapper):
    """Wraps a cell at blanks, and within a path behind a slash."""

    wordsep_re = re.compile(r"(\s+|[^\s/]*/(?=[^\s/]))")


def _row(cells: list[str]) -> str:
    """Lay one row out, wrapping what does not fit its column."""
    wrapped = [
        _Cell(width).wrap(cell) or [""] for cell, (_, width) in zip(cells, _COLUMNS, strict=True)
    ]
    height = max(len(cell) for cell in wrapped)
    rows = []
    for index in range(height):
        parts = [
            (cell[index] if index < len(cell) else "").ljust(width)
            for cell, (_, width) in zip(wrapped, _COLUMNS, strict=True)
        ]
        rows.append(" ".join(parts).rstrip())
    return "\n".join(rows)


def _attention(result: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for name, host in result["hosts"].items():
        if host["status"] == "unreachable":
            lines.append(f"! {name}: could not be reached; the reason stands at its name above")
        for stage in host["stages"]:
            texts = [*stage["warnings"], *([stage["problem"]] if stage["problem"] else [])]
            for text in texts:
                lines += textwrap.wrap(text, WIDTH, initial_indent="! ", subsequent_indent="  ")
    return ["", *lines] if lines else []


def _summary(result: dict[str, Any]) -> str:
    counts: dict[str, int] = {}
    for host in result["hosts"].values():
        counts[host["status"]] = counts.get(host["status"], 0) + 1
    words = {"differs": "would change"}
    text = ", ".join(f"{count} {words.get(name, name)}" for name, count in sorted(counts.items()))
    label = " (rehearsal)" if any(host["rehearsal"] for host in result["hosts"].values()) else ""
    total = sum(counts.values())
    return f"{total} host{'s' if total != 1 else ''}{label}: {text}" if total else "no hosts"
