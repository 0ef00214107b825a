"""What a run shows on a terminal: hosts with the same result once, the worst first."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rich.console import RenderableType

from pyinfra_gpu.host_names import brief, natural
from pyinfra_gpu.report import smoke
from pyinfra_gpu.report.screen import (
    BLANK,
    Sentence,
    alike,
    counted,
    head,
    joined,
    labelled,
    printed,
    said_once,
)
from pyinfra_gpu.text import WIDTH, shortened

Stage = Mapping[str, Any]
Host = Mapping[str, Any]

_NONE: Mapping[str, Any] = MappingProxyType({})
_LONGEST = 120  # characters of a text in a cell
_MOST = 3  # texts in a cell: those of a bare host would fill a screen, and `check` has all
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


def render(
    result: Mapping[str, Any],
    tests: Mapping[str, smoke.Told] = _NONE,
    across: Mapping[str, smoke.Told] = _NONE,
    *,
    whole: bool = False,
    width: int = WIDTH,
) -> str:
    """Return what each host is like, the smoke tests' figures and what needs attention.

    + result: see `run.as_json`; + tests: host -> its own smoke test
    + across: host -> what it has to say of the multi-node step
    + whole: show every stage of every host, and all figures
    """
    told, dry = result["hosts"], result["dry"]
    names = sorted(told, key=lambda name: (list(_WORDS).index(_state(told[name])), natural(name)))
    hosts = {name: told[name] for name in names}
    blocks = joined(_groups(hosts, dry=dry, whole=whole))
    for each in (tests, across):
        blocks += smoke.blocks({name: each[name] for name in names if name in each}, whole=whole)
    blocks += _attention(hosts, dry=dry)
    states = [_word(each, dry=dry).lower() for each in hosts.values()]
    summary = counted(states, sum(host["rehearsal"] for host in hosts.values()))
    return printed([*blocks, BLANK, Sentence(summary, "", "")], width).lstrip("\n")


def _left(stages: Sequence[Stage]) -> bool:
    return any(each["effect"] == "report" for stage in stages for each in stage["deviations"])


def _state(host: Host) -> str:
    return _STILL if host["status"] == "changed" and _left(host["stages"]) else str(host["status"])


def _word(host: Host, *, dry: bool) -> str:
    return "REFUSED" if dry and host["status"] == "failed" else _WORDS[_state(host)]


def _groups(hosts: Mapping[str, Host], *, dry: bool, whole: bool) -> list[list[RenderableType]]:
    """Return a head and rows for each group of hosts that have the same ones."""
    stages = {name: _shown(host, dry=dry, whole=whole) for name, host in hosts.items()}

    def same(name: str) -> Hashable:
        return _state(hosts[name]), hosts[name]["rehearsal"], tuple(stages[name])

    groups: list[list[RenderableType]] = []
    for names in alike(hosts, same):
        first = hosts[names[0]]
        rows = []
        for shown in stages[names[0]]:
            stage, found, did = shown
            rows.append((stage, found))
            took = "" if dry else f", {max(stages[name][shown] for name in names):.1f} s"
            rows += [("", f"-> {did}{took}")] if did else []
        title = head(names, _word(first, dry=dry), rehearsal=first["rehearsal"])
        groups.append([Sentence(title), *([labelled(rows, 2)] if rows else [])])
    return groups


def _shown(host: Host, *, dry: bool, whole: bool) -> dict[tuple[str, str, str], float]:
    """Return the seconds of the stages in which something differs, or of all.

    By the stage, what was found and what was done, "" where nothing was.
    """
    shown = {}
    for stage in host["stages"]:
        did = _did(stage, host, dry=dry)
        noted = all(each["effect"] == "note" for each in stage["deviations"])
        if whole or did or stage["unreadable"] or not noted:
            unjudged = stage["problem"] or stage["unreadable"]
            found = _brief(stage["found"]) or ("not judged" if unjudged else "as declared")
            shown[stage["stage"], found, did] = stage["seconds"]
    return shown


def _did(stage: Stage, host: Host, *, dry: bool) -> str:
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


def _attention(hosts: Mapping[str, Host], *, dry: bool) -> list[RenderableType]:
    """Return what a person has to know, each sentence once with the hosts that it is about.

    What failed is marked by an exclamation mark, all else by a hyphen.
    """
    said: dict[str, list[tuple[str, str]]] = {"! ": [], "- ": []}
    for name, host in hosts.items():
        if host["status"] == "unreachable":
            said["! "].append((name, "could not be reached: see the error of its connection above"))
        for stage in host["stages"]:
            said["! "] += [(name, stage["problem"])] if stage["problem"] else []
            said["- "] += [(name, each) for each in (*stage["warnings"], *_causes(stage, dry=dry))]
    sentences = [
        Sentence(f"{brief(names)}: {text}", mark)
        for mark, texts in said.items()
        for text, names in said_once(texts)
    ]
    return [BLANK, *sentences] if sentences else []


def _causes(stage: Stage, *, dry: bool) -> Iterator[str]:
    """Yield since when and by whom something is not as declared, or was until it was repaired."""
    for each in stage["deviations"]:
        if since := each["since"]:
            repaired = "repaired: " if each["action"] in stage["changed"] and not dry else ""
            author = f", by {since['by']}" if since["by"] else ""
            when = since["when"].replace("T", " ")[:16]
            yield f"{repaired}{each['found']}, since {when}: {since['change']}{author}"
