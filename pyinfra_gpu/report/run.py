"""The result of a run: a table for the terminal, JSON for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pyinfra import context
from pyinfra.api.state import StateStage

from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.journal import Entry, Journal
from pyinfra_gpu.host_names import natural
from pyinfra_gpu.report import screen, smoke
from pyinfra_gpu.report.check.answer import finding_as_json
from pyinfra_gpu.stages.finding import Stage
from pyinfra_gpu.text import WIDTH, columns, shortened

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.diagnosis.explained import Explained

REPORT_VARIABLE = "PYINFRA_GPU_REPORT"
"""Environment variable naming a file that gets the run's result as JSON."""

_STAGES = [*map(str, Stage)]
_LONGEST = 120  # characters of a text in a row
_MOST = 3  # texts in a row: those of a bare host would fill a screen, and `check` has all

_WORDS = {
    "failed": "FAILED",
    "unreachable": "UNREACHABLE",
    "cut off": "CUT OFF",
    "not looked at": "NOT CHECKED",
    "left alone": "not as declared (left alone)",
    "differs": "would change",
    "changed": "changed",
    "as declared": "as declared",
}
"""What is said of each status, the worst first."""


@dataclass(frozen=True, kw_only=True)
class HostRun:
    """What a run found, changed and could not do on one host.

    + status: a key of `_WORDS`: "differs" in a dry run only; "left alone": not as declared, and a
      deploy does nothing about it
    + entries: its stages, in the deploy's order
    + smoke, across: the smoke tests of this run: the host's own, the multi-node step
    """

    name: str
    status: str
    dry: bool = False
    rehearsal: bool = False
    entries: Sequence[Entry] = ()
    smoke: Explained | None = None
    across: Explained | None = None

    @property
    def state(self) -> str:
        """Its status, in words."""
        if self.status == "changed" and any(map(_left_alone, self.entries)):
            return "changed (still not as declared)"
        return "REFUSED" if self.dry and self.status == "failed" else _WORDS[self.status]

    def ended(self, entry: Entry) -> bool:
        """Whether all was done that a stage was to do; of another one nobody knows how much."""
        return not (entry.problem or self._is_cut_off(entry))

    def _is_cut_off(self, entry: Entry) -> bool:
        return self.status == "cut off" and entry is self.entries[-1]

    def did(self, entry: Entry) -> str:
        """Return what was done in a stage, or in a plan would be; empty where it is nothing."""
        if entry.problem:
            return "REFUSED" if self.dry else "FAILED"
        if self._is_cut_off(entry):
            return "CUT OFF"
        return _brief(entry.actions) or ("left alone" if _left_alone(entry) else "")

    def shown(self, *, whole: bool) -> screen.Shown:
        """Return what a terminal shows; + whole: every stage."""
        rows: list[screen.Row] = []
        for entry in self.entries:
            did, differs = self.did(entry), any(e.effect != "note" for e in entry.findings)
            if whole or did or entry.unreadable or differs:
                unjudged = entry.problem or entry.unreadable
                found = _brief(entry.found) or ("not judged" if unjudged else "as declared")
                rows.append(screen.Row(label=entry.stage, text=found))
            if did:
                took, seconds = "" if self.dry else f", {screen.VARIES} s", f"{entry.seconds:.1f}"
                rows.append(screen.Row(label="", text=f"-> {did}{took}", varies=seconds))
        return screen.Shown(
            name=self.name, state=self.state, rehearsal=self.rehearsal, rows=tuple(rows)
        )

    def remarks(self) -> Iterator[tuple[str, str, str]]:
        """Yield what needs attention: a mark, the host and the text.

        What failed is marked by an exclamation mark; a hyphen marks warnings, and since when and
        by whom something is not as declared, or was until it was repaired.
        """
        if self.status == "unreachable":
            yield "! ", self.name, "could not be reached: see the error of its connection above"
        for entry in self.entries:
            if entry.problem:
                yield "! ", self.name, entry.problem
            yield from (("- ", self.name, each) for each in entry.warnings)
            for each in entry.findings:
                if since := each.since:
                    repaired = each.acts and self.ended(entry) and not self.dry
                    text = f"{each.found}, since {since.moment}: {since}"
                    yield "- ", self.name, f"{'repaired: ' if repaired else ''}{text}"

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data.

        A stage's ``changed`` is what was completed, ``unfinished`` what was to be done where the
        run failed, was refused or was cut off.
        """
        stages = [
            {
                "stage": each.stage,
                "found": each.found,
                "changed": each.actions if self.ended(each) else [],
                "unfinished": [] if self.ended(each) else each.actions,
                "warnings": each.warnings,
                "deviations": [finding_as_json(finding) for finding in each.findings],
                "problem": each.problem,
                "unreadable": each.unreadable,
                "seconds": round(each.seconds, 2),
            }
            for each in self.entries
        ]
        return {
            "status": self.status,
            "stages": stages,
            "rehearsal": self.rehearsal,
            "smoke": self.smoke.as_json() if self.smoke else None,
            "smoke_across": self.across.as_json() if self.across else None,
        }


def _left_alone(entry: Entry) -> bool:
    return any(each.effect == "report" for each in entry.findings)


def _brief(texts: Sequence[str]) -> str:
    more = [f"and {len(texts) - _MOST} more"] if len(texts) > _MOST else []
    return "; ".join([*(shortened(text, _LONGEST) for text in texts[:_MOST]), *more])


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
        _show(state, book)


def _finish(state: State, book: Journal) -> None:
    if not (book.plan_shown and _is_dry(state)):
        _show(state, book)
    if path := os.environ.get(REPORT_VARIABLE):
        text = json.dumps(as_json(state, book), indent=2, sort_keys=True)
        Path(path).write_text(f"{text}\n", encoding="utf-8")


def _show(state: State, book: Journal) -> None:
    text = render(hosts_of(state, book), whole=state.print_noop_info, width=columns())  # -v
    click.echo(f"\n{text}", err=True)


def _is_dry(state: State) -> bool:
    return state.current_stage < StateStage.Execute


def as_json(state: State, book: Journal) -> dict[str, Any]:
    """Return the run's result as plain data, by host."""
    hosts = {host.name: host.as_json() for host in hosts_of(state, book)}
    return {"schema_version": 1, "dry": _is_dry(state), "hosts": hosts}


def hosts_of(state: State, book: Journal) -> list[HostRun]:
    """Return what the run did on each of its hosts."""
    return [_run_of(state, book, host) for host in state.inventory if state.is_host_in_limit(host)]


def _run_of(state: State, book: Journal, host: Host) -> HostRun:
    # What one stage brought beforehand for another is noted there before its turn.
    entries = sorted(book.of(host.name), key=lambda entry: _STAGES.index(entry.stage))
    status = _status(state, book, host, entries)
    return HostRun(
        name=host.name,
        status=status,
        dry=_is_dry(state),
        rehearsal=bool(host.data.get("rehearsal", False)),
        # What was begun on one that nobody came to says nothing of the host.
        entries=entries if status != "not looked at" else (),
        smoke=book.verdicts.get(host.name),
        across=book.across.get(host.name),
    )


def _status(state: State, book: Journal, host: Host, entries: list[Entry]) -> str:
    if host not in state.activated_hosts:
        return "unreachable"
    if host in state.failed_hosts or any(entry.problem for entry in entries):
        return "failed"
    if state.current_stage == StateStage.Execute:  # pyinfra never came to its results
        return "cut off"
    if book.interrupted and host.name not in book.planned:
        return "cut off" if host.name in book.looks else "not looked at"
    if any(entry.actions for entry in entries):
        return "differs" if _is_dry(state) else "changed"
    if any(map(_left_alone, entries)):
        return "left alone"
    return "as declared" if entries else "not looked at"


def render(runs: Sequence[HostRun], *, whole: bool = False, width: int = WIDTH) -> str:
    """Return what each host is like, the smoke tests' figures and what needs attention.

    + whole: show every stage of every host, and all figures
    """
    order = [*_WORDS]
    runs = sorted(runs, key=lambda run: (order.index(run.status), natural(run.name)))
    shown = [run.shown(whole=whole) for run in runs]
    blocks = screen.hosts(shown)
    blocks += smoke.blocks({run.name: run.smoke for run in runs if run.smoke}, whole=whole)
    blocks += smoke.blocks({run.name: run.across for run in runs if run.across}, whole=whole)
    blocks += screen.remarks(remark for run in runs for remark in run.remarks())
    states = [each.state.lower() for each in shown]
    summary = screen.counted(states, sum(each.rehearsal for each in shown))
    return screen.printed([*blocks, screen.BLANK, screen.line(summary)], width)
