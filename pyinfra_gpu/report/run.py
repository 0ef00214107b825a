"""The result of a run: a table for the terminal, JSON for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click
from pyinfra import context
from pyinfra.api.state import StateStage

from pyinfra_gpu.diagnosis.explained import Explained
from pyinfra_gpu.drift.finding import Id, Stage
from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.journal import Entry, Journal
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.host_names import natural
from pyinfra_gpu.report import screen, smoke
from pyinfra_gpu.report.check.answer import finding_as_json, versions
from pyinfra_gpu.text import WIDTH, columns, shortened

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

REPORT_VARIABLE = "PYINFRA_GPU_REPORT"
"""Environment variable naming a file that gets the run's result as JSON."""

_LONGEST_REASON = 200  # characters
_ORDER = {str(stage): place for place, stage in enumerate(Stage)}
_NONE: Mapping[str, Any] = MappingProxyType({})
_UNKNOWN = {
    "status": "failed",
    "rehearsal": False,
    "facts": {},
    "smoke": None,
    "smoke_across": None,
}
_LONGEST = 120  # characters of a text in a row
_MOST = 3  # texts in a row: those of a bare host would fill a screen, and `check` has all
_STILL = "changed (still not as declared)"
"""The state of a host that was changed, and on which something else is left alone."""

_WORDS = {
    "failed": "FAILED",
    "unreachable": "UNREACHABLE",
    "cut off": "CUT OFF",
    "not looked at": "NOT CHECKED",
    "left alone": "not as declared (left alone)",
    _STILL: _STILL,
    "differs": "would change",
    "changed": "changed",
    "as declared": "as declared",
}
"""What is said of each state, the worst first."""


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


# -- as plain data


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
    told = {}
    for host in filter(state.is_host_in_limit, state.inventory):
        try:
            told[host.name] = _host_as_json(state, book, host, dry=dry)
        except Exception as error:  # what a host told must not keep the others' report away
            why = shortened(f"{type(error).__name__}: {error}", _LONGEST_REASON)
            broken = Entry(host.name, "report", problem=f"{host.name}: its report failed ({why})")
            told[host.name] = {**_UNKNOWN, "stages": [_stage(broken, ended=False)]}
    return {"schema_version": 1, "dry": dry, "hosts": told}


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
    found = book.verdicts.get(host.name) or _still_good(entries, smoke.last_smoke(look))
    across = book.across.get(host.name)
    return {
        "status": status,
        "stages": [_stage(e, ended=not (e.problem or refused or e in cut)) for e in entries],
        "rehearsal": bool(host.data.get("rehearsal", False)),
        "smoke": found.as_json() if found else None,
        "smoke_across": across.as_json() if across else None,
        "facts": versions(look) if look else {},
    }


def _still_good(entries: list[Entry], last: Explained | Unknown | None) -> Explained | None:
    """Return the verdict that the host had already, where the stage found it to hold."""
    stage = next((each for each in entries if each.stage == Stage.SMOKE), None)
    if stage is None or stage.problem or isinstance(last, Unknown):
        return None
    return None if {each.id for each in stage.findings} - {Id.SMOKE_UNPROVEN_ACROSS_HOSTS} else last


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


# -- as a person reads it


def render(
    result: Mapping[str, Any],
    tests: Mapping[str, smoke.Told] = _NONE,
    across: Mapping[str, smoke.Told] = _NONE,
    *,
    whole: bool = False,
    width: int = WIDTH,
) -> str:
    """Return what each host is like, the smoke tests' figures and what needs attention.

    + result: see `as_json`; + tests: host -> its own smoke test
    + across: host -> what it has to say of the multi-node step
    + whole: show every stage of every host, and all figures
    """
    told, dry = result["hosts"], result["dry"]
    order = [*_WORDS]
    names = sorted(told, key=lambda name: (order.index(_state(told[name])), natural(name)))
    shown = [_shown(name, told[name], dry=dry, whole=whole) for name in names]
    blocks = screen.hosts(shown)
    for each in (tests, across):
        blocks += smoke.blocks({name: each[name] for name in names if name in each}, whole=whole)
    blocks += screen.remarks(each for name in names for each in _attention(name, told[name], dry))
    states = [each.state.lower() for each in shown]
    summary = screen.counted(states, sum(each.rehearsal for each in shown))
    return screen.printed([*blocks, screen.BLANK, screen.line(summary)], width)


def _left(stages: Sequence[Mapping[str, Any]]) -> bool:
    return any(each["effect"] == "report" for stage in stages for each in stage["deviations"])


def _state(host: Mapping[str, Any]) -> str:
    return _STILL if host["status"] == "changed" and _left(host["stages"]) else str(host["status"])


def _shown(name: str, host: Mapping[str, Any], *, dry: bool, whole: bool) -> screen.Shown:
    state = "REFUSED" if dry and host["status"] == "failed" else _WORDS[_state(host)]
    rows: list[screen.Row] = []
    for stage in host["stages"]:
        did = _did(stage, host, dry=dry)
        noted = all(each["effect"] == "note" for each in stage["deviations"])
        if whole or did or stage["unreadable"] or not noted:
            unjudged = stage["problem"] or stage["unreadable"]
            found = _brief(stage["found"]) or ("not judged" if unjudged else "as declared")
            rows.append(screen.Row(label=stage["stage"], text=found))
        if did:
            took, seconds = "" if dry else f", {screen.VARIES} s", f"{stage['seconds']:.1f}"
            rows.append(screen.Row(label="", text=f"-> {did}{took}", varies=seconds))
    return screen.Shown(name=name, state=state, rehearsal=host["rehearsal"], rows=tuple(rows))


def _did(stage: Mapping[str, Any], host: Mapping[str, Any], *, dry: bool) -> str:
    if stage["problem"]:
        return "REFUSED" if dry else "FAILED"
    if host["status"] == "cut off" and stage is host["stages"][-1]:
        return "CUT OFF"
    if stage["unfinished"]:
        return "not reached"
    return _brief(stage["changed"]) or ("left alone" if _left([stage]) else "")


def _brief(texts: Sequence[str]) -> str:
    more = [f"and {len(texts) - _MOST} more"] if len(texts) > _MOST else []
    return "; ".join([*(shortened(text, _LONGEST) for text in texts[:_MOST]), *more])


def _attention(name: str, host: Mapping[str, Any], dry: bool) -> Iterator[tuple[str, str, str]]:
    """Yield what a person has to know: a mark, the host and the text.

    What failed is marked by an exclamation mark; a hyphen marks warnings, and since when and by
    whom something is not as declared, or was until it was repaired.
    """
    if host["status"] == "unreachable":
        yield "! ", name, "could not be reached: see the error of its connection above"
    for stage in host["stages"]:
        if stage["problem"]:
            yield "! ", name, stage["problem"]
        yield from (("- ", name, each) for each in stage["warnings"])
        for each in stage["deviations"]:
            if since := each["since"]:
                repaired = "repaired: " if each["action"] in stage["changed"] and not dry else ""
                author = f", by {since['by']}" if since["by"] else ""
                when = since["when"].replace("T", " ")[:16]
                text = f"{repaired}{each['found']}, since {when}: {since['change']}{author}"
                yield "- ", name, text
