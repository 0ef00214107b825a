"""What a run shows on a terminal: hosts with the same result once, the worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pyinfra_gpu.host_names import brief, natural
from pyinfra_gpu.report import smoke
from pyinfra_gpu.report.screen import BLANK, Sentence, alike, head, printed, safe, said_once
from pyinfra_gpu.text import WIDTH

Stage = Mapping[str, Any]
Host = Mapping[str, Any]
Row = tuple[tuple[str, str, str], float]
"""Stage, what was found, what was changed; and the seconds it took."""

_NONE: Mapping[str, Any] = MappingProxyType({})
_LEFT_ALONE = "left alone"
"""A host that is not as declared, and where this run had nothing to do."""

_WORDS = {
    "failed": "FAILED",
    "unreachable": "UNREACHABLE",
    "cut off": "CUT OFF",
    "not looked at": "NOT LOOKED AT",
    _LEFT_ALONE: "not as declared, and left alone",
    "differs": "would change",
    "changed": "changed",
    "as declared": "as declared",
}
"""What is said of each state, the worst first."""


def render(
    result: Mapping[str, Any],
    tests: Mapping[str, smoke.Tested] = _NONE,
    across: Mapping[str, smoke.Across] = _NONE,
    *,
    whole: bool = False,
    width: int = WIDTH,
) -> str:
    """Return the table, the smoke tests' figures and what needs attention.

    + result: see `run.as_json`; + tests: host -> its own smoke test
    + across: host -> what it has to say of the multi-node step
    + whole: show every stage of every host, and all figures
    """
    hosts: dict[str, Host] = dict(
        sorted(result["hosts"].items(), key=lambda each: (_badness(each[1]), natural(each[0])))
    )
    blocks = _table(hosts, dry=result["dry"], whole=whole)
    blocks += smoke.blocks({name: tests[name] for name in hosts if name in tests}, whole=whole)
    blocks += smoke.across_blocks({name: across.get(name) for name in hosts})
    blocks += _attention(hosts)
    return printed([*blocks, BLANK, Text(_summary(hosts))], width).lstrip("\n")


def _state(host: Host) -> str:
    """Return a host's status; one that is not as declared, and was left so, is not called that."""
    effects = {each["effect"] for stage in host["stages"] for each in stage["deviations"]}
    left = host["status"] == "as declared" and "report" in effects
    return _LEFT_ALONE if left else str(host["status"])


def _badness(host: Host) -> int:
    return list(_WORDS).index(_state(host))


def _table(hosts: Mapping[str, Host], *, dry: bool, whole: bool) -> list[RenderableType]:
    """Return a head and rows for each group of hosts that have the same ones."""
    rows = {name: _rows(host, dry=dry, whole=whole) for name, host in hosts.items()}
    groups = alike(
        hosts,
        lambda name: (
            *(_state(hosts[name]), hosts[name]["rehearsal"]),
            tuple(cells for cells, _ in rows[name]),
        ),
    )
    blocks: list[RenderableType] = []
    if any(rows.values()):
        blocks += [_grid("stage", "found", "would change" if dry else "changed", "s"), BLANK]
    before: Sequence[Row] = ()
    for number, names in enumerate(groups):
        first = hosts[names[0]]
        same = rows[names[0]]
        blocks += [BLANK] if number and (same or before) else []
        state = _WORDS[_state(first)]
        blocks.append(Sentence(head(names, state, rehearsal=first["rehearsal"])))
        for place, (cells, _) in enumerate(same):
            slowest = max(rows[name][place][1] for name in names)
            blocks.append(_grid(*cells, f"{slowest:.1f}"))
        before = same
    return blocks


def _grid(*cells: str) -> Table:
    """Return a row of the table; those of all groups have the same columns."""
    grid = Table.grid(expand=True, padding=(0, 1, 0, 0), pad_edge=False)
    grid.add_column(width=11)
    grid.add_column(ratio=6, overflow="fold")
    grid.add_column(ratio=5, overflow="fold")
    grid.add_column(width=6, no_wrap=True)
    grid.add_row(*map(safe, cells))
    return grid


def _rows(host: Host, *, dry: bool, whole: bool) -> list[Row]:
    """Return the rows of a host: of the stages in which something differs, or of all."""
    if _state(host) == "as declared" and not whole:
        return []
    rows: list[Row] = []
    others: list[Stage] = []
    for stage in host["stages"]:
        did = _did(stage, host, dry=dry)
        differs = stage["unreadable"] or any(e["effect"] != "note" for e in stage["deviations"])
        if whole or did != "-" or differs:
            unjudged = stage["problem"] or stage["unreadable"]
            found = _brief(stage["found"], "; ") or ("not judged" if unjudged else "as declared")
            rows.append(((stage["stage"], found, did), stage["seconds"]))
        else:
            others.append(stage)
    if others:
        name = f"{len(others)} other{'s' if len(others) > 1 else ''}" if rows else "all"
        rows.append(((name, "as declared", "-"), sum(stage["seconds"] for stage in others)))
    return rows


def _did(stage: Stage, host: Host, *, dry: bool) -> str:
    if stage["problem"]:
        return "REFUSED" if dry else "FAILED"
    if host["status"] == "cut off" and stage is host["stages"][-1]:
        return "CUT OFF"
    return _brief(stage["changed"], ", ") or "-"


def _brief(texts: Sequence[str], separator: str, most: int = 3) -> str:
    """Join texts for a cell: those of a bare host would fill a screen, and `check` has all."""
    more = len(texts) - most
    return separator.join(texts if more <= 1 else [*texts[:most], f"and {more} more"])


def _attention(hosts: Mapping[str, Host]) -> list[RenderableType]:
    """Return what a person has to know, each sentence once with the hosts that it is about."""
    texts: list[tuple[str, str]] = []
    for name, host in hosts.items():
        if host["status"] == "unreachable":
            texts.append((name, "could not be reached: see the error of its connection above"))
        for stage in host["stages"]:
            texts += [(name, text) for text in (*stage["warnings"], stage["problem"]) if text]
    sentences = [Sentence(f"{brief(names)}: {text}", "! ") for text, names in said_once(texts)]
    return [BLANK, *sentences] if sentences else []


def _summary(hosts: Mapping[str, Host]) -> str:
    if not hosts:
        return "no hosts"
    states = [
        "would change" if _state(each) == "differs" else _state(each) for each in hosts.values()
    ]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    label = " (rehearsal)" if any(host["rehearsal"] for host in hosts.values()) else ""
    return f"{len(hosts)} host{'s' if len(hosts) != 1 else ''}{label}: {counts}"
