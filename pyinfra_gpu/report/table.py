"""The verdict of a run for the terminal, 80 columns wide.

Worst hosts first, and those to which the same happened together; what is as declared is a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pyinfra_gpu.diagnosis.explained import Explained
from pyinfra_gpu.host_names import brief, natural
from pyinfra_gpu.report import smoke as smoke_report
from pyinfra_gpu.report import smoke_fleet
from pyinfra_gpu.report.fleet import alike, counted, listed, said_once
from pyinfra_gpu.text import row, wrapped

_NONE: Mapping[str, Any] = MappingProxyType({})
_COLUMNS = (("stage", 11), ("found", 32), ("changed", 27), ("s", 6))
_LEFT_ALONE = "left alone"
"""What a host is that is not as declared, and with which the run had nothing to do."""

_WORST_FIRST = (
    *("failed", "unreachable", "cut off", "not looked at", _LEFT_ALONE, "differs", "changed"),
    "as declared",
)
_WORDS = {
    "failed": "FAILED",
    "unreachable": "UNREACHABLE",
    "cut off": "CUT OFF",
    "not looked at": "NOT LOOKED AT",
    "differs": "would change",
    _LEFT_ALONE: "not as declared, and left alone",
}


def render(
    result: dict[str, Any],
    tests: Mapping[str, Explained] = _NONE,
    across: Mapping[str, smoke_report.Across] = _NONE,
    *,
    whole: bool = False,
) -> str:
    """Return the table, the smoke tests' figures and what needs attention, 80 columns wide.

    + tests: host -> its own smoke test; + across: host -> what it has to say of a step across hosts
    + whole: show every stage of every host, and all figures
    """
    hosts: dict[str, dict[str, Any]] = dict(
        sorted(result["hosts"].items(), key=lambda each: (_badness(each[1]), natural(each[0])))
    )
    result = {**result, "hosts": hosts}
    lines = _table(result, whole=whole)
    lines += smoke_fleet.lines({name: tests.get(name) for name in hosts}, whole=whole)
    lines += smoke_report.across_lines({name: across.get(name) for name in hosts})
    lines += _attention(result)
    lines += ["", _summary(result)]
    return "\n".join(lines).lstrip("\n")


def _state(host: dict[str, Any]) -> str:
    """Return a host's status; one that is not as declared, and was left so, is not called that."""
    effects = {each["effect"] for stage in host["stages"] for each in stage["deviations"]}
    left = host["status"] == "as declared" and "report" in effects
    return _LEFT_ALONE if left else str(host["status"])


def _badness(host: dict[str, Any]) -> int:
    return _WORST_FIRST.index(_state(host))


# -- the table


def _table(result: dict[str, Any], *, whole: bool) -> list[str]:
    """Return a block of rows for each group of hosts that have the same ones."""
    shown = {
        name: _rows(host, dry=result["dry"], whole=whole) for name, host in result["hosts"].items()
    }
    lines: list[str] = []
    if any(shown.values()):
        titles = [name for name, _ in _COLUMNS]
        if result["dry"]:
            titles[2] = "would change"
        lines = [_row(titles), _row(["-" * width for _, width in _COLUMNS])]
    groups = alike(
        result["hosts"].items(),
        lambda each: (
            *(_state(each[1]), each[1]["rehearsal"]),
            tuple(cells for cells, _ in shown[each[0]]),
        ),
    )
    before: list[Row] = []
    for number, group in enumerate(groups):
        names = [name for name, _ in group]
        rows = _slowest([shown[name] for name in names])
        lines += [""] if number and (rows or before) else []
        lines += _head(names, group[0][1])
        lines += [_row([*cells, f"{seconds:.1f}"]) for cells, seconds in rows]
        before = rows
    return lines


def _head(names: list[str], host: dict[str, Any]) -> list[str]:
    state = _state(host)
    text = f"{counted(names, rehearsal=host['rehearsal'])} {_WORDS.get(state, state)}"
    return wrapped(f"{text}{listed(names)}", "", "  ", whole_words=True)


Row = tuple[tuple[str, str, str], float]
"""Stage, what was found, what was changed; and the seconds it took."""


def _rows(host: dict[str, Any], *, dry: bool, whole: bool) -> list[Row]:
    """Return the rows of a host: of the stages in which something differs, or of all."""
    if _state(host) == "as declared" and not whole:
        return []
    rows: list[Row] = []
    others: list[dict[str, Any]] = []
    for stage in host["stages"]:
        did = _did(stage, host, dry=dry)
        if whole or did != "-" or _differs(stage):
            untold = "not judged" if stage["problem"] or stage["unreadable"] else "as declared"
            found = _brief(stage["found"], "; ") or untold
            rows.append(((stage["stage"], found, did), stage["seconds"]))
        else:
            others.append(stage)
    if others:
        seconds = sum(stage["seconds"] for stage in others)
        name = f"{len(others)} other{'s' if len(others) > 1 else ''}" if rows else "all"
        rows.append(((name, "as declared", "-"), seconds))
    return rows


def _differs(stage: dict[str, Any]) -> bool:
    effects = [each["effect"] for each in stage["deviations"]]
    return bool(stage["unreadable"]) or any(each != "note" for each in effects)


def _did(stage: dict[str, Any], host: dict[str, Any], *, dry: bool) -> str:
    if stage["problem"]:
        return "REFUSED" if dry else "FAILED"
    if host["status"] == "cut off" and stage is host["stages"][-1]:
        return "CUT OFF"
    return _brief(stage["changed"], ", ") or "-"


def _slowest(hosts: list[list[Row]]) -> list[Row]:
    """Return the rows that hosts have in common, with the seconds that the slowest took."""
    return [(same[0][0], max(seconds for _, seconds in same)) for same in zip(*hosts, strict=True)]


def _brief(texts: list[str], separator: str, most: int = 3) -> str:
    """Join texts for a cell of the table; a bare host would fill a screen. `check` tells all."""
    more = len(texts) - most
    shown = texts if more <= 1 else [*texts[:most], f"and {more} more"]
    return separator.join(shown)


def _row(cells: list[str]) -> str:
    return row(cells, [width for _, width in _COLUMNS])


# -- below it


def _attention(result: dict[str, Any]) -> list[str]:
    """Return what a person has to know, each sentence once with the hosts that it is about."""
    texts: list[tuple[str, str]] = []
    for name, host in result["hosts"].items():
        if host["status"] == "unreachable":
            texts.append((name, "could not be reached; the reason stands at its name above"))
        for stage in host["stages"]:
            found = [*stage["warnings"], *([stage["problem"]] if stage["problem"] else [])]
            texts += [(name, text) for text in found]
    lines: list[str] = []
    for text, names in said_once(texts):
        lines += wrapped(f"{brief(names)}: {text}", "! ", "  ", whole_words=True)
    return ["", *lines] if lines else []


def _summary(result: dict[str, Any]) -> str:
    counts: dict[str, int] = {}
    for host in result["hosts"].values():
        counts[_state(host)] = counts.get(_state(host), 0) + 1
    words = {"differs": "would change"}
    text = ", ".join(f"{count} {words.get(name, name)}" for name, count in counts.items())
    label = " (rehearsal)" if any(host["rehearsal"] for host in result["hosts"].values()) else ""
    total = sum(counts.values())
    return f"{total} host{'s' if total != 1 else ''}{label}: {text}" if total else "no hosts"
