"""The verdict of a run: a table for the terminal, JSON for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click
from pyinfra import context
from pyinfra.api.state import StateStage

from pyinfra_gpu.diagnosis.evidence import Explained, explained
from pyinfra_gpu.drift.concern import history_of
from pyinfra_gpu.drift.finding import Id, Stage
from pyinfra_gpu.drift.history import as_since
from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.journal import Entry, Journal
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.verdict import AcrossStamp, Verdict
from pyinfra_gpu.report import smoke as smoke_report
from pyinfra_gpu.report.plain import finding_as_json
from pyinfra_gpu.report.versions import versions
from pyinfra_gpu.text import row, shortened, wrapped

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record

REPORT_VARIABLE = "PYINFRA_GPU_REPORT"
"""Environment variable naming a file that gets the run's verdict as JSON."""

_LONGEST_REASON = 200  # characters
RECENT = 40
"""So many of the latest changes of packages are reported for each host."""

_NONE: Mapping[str, Any] = MappingProxyType({})
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
        click.echo("\n" + render(as_json(state, book), book.verdicts, book.across), err=True)


def _finish(state: State, book: Journal) -> None:
    result = as_json(state, book)
    if not (book.plan_shown and result["dry"]):
        click.echo("\n" + render(result, book.verdicts, book.across), err=True)
    if path := os.environ.get(REPORT_VARIABLE):
        Path(path).write_text(json.dumps(result, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def as_json(state: State, book: Journal) -> dict[str, Any]:
    """Return the run's verdict as plain data.

    ``hosts`` maps each host of the run to its stages, its smoke test's verdict, and its status:
    ``as declared``, ``changed``, ``failed``, ``unreachable``, ``cut off``, ``not looked at``; in
    a dry run ``differs``. ``complete`` tells whether the deploy file was gone through to its end;
    ``last_smoke`` is the verdict that the first look found (``{"unknown": reason}`` where it
    cannot be read), which ``smoke`` holds only while it is good; the verdict of a test that failed
    in this run has its ``diagnosis``. ``smoke_across`` is what is known of the step across hosts.
    ``facts`` are the versions at the first look, ``history`` is what happened to packages lately.
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
    entries = [entry for (name, _), entry in book.entries.items() if name == host.name]
    look = book.looks.get(host.name)
    changes = () if look is None else history_of(look)
    return {
        "status": _status(state, host.name, entries, dry=dry),
        "complete": host.name in book.planned,
        "rehearsal": bool(host.data.get("rehearsal", False)),
        "stages": [_stage(entry) for entry in entries],
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


def render(
    result: dict[str, Any],
    tests: Mapping[str, Explained] = _NONE,
    across: Mapping[str, smoke_report.Across] = _NONE,
) -> str:
    """Return the table, the smoke test's figures and what needs attention, 80 columns wide.

    + tests: host -> its own smoke test; + across: host -> what it has to say of a step across hosts
    """
    lines = _table(result)
    for name in result["hosts"]:
        try:
            shown = smoke_report.lines(name, tests.get(name))
        except Exception as error:  # the same
            shown = wrapped(f"{name}: its smoke test cannot be shown ({error!r})", "! ", "  ")
        if shown:
            lines += ["", *shown]
    lines += smoke_report.across_lines({name: across.get(name) for name in result["hosts"]})
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


def _row(cells: list[str]) -> str:
    return row(cells, [width for _, width in _COLUMNS])


def _attention(result: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for name, host in result["hosts"].items():
        if host["status"] == "unreachable":
            lines.append(f"! {name}: could not be reached; the reason stands at its name above")
        for stage in host["stages"]:
            texts = [*stage["warnings"], *([stage["problem"]] if stage["problem"] else [])]
            for text in texts:
                lines += wrapped(text, "! ", "  ")
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
