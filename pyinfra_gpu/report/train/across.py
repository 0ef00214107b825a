"""One run that all hosts of a group train together: all of them start it, or none does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pyinfra_gpu.report.check.running import Request, known, members
from pyinfra_gpu.report.train.answer import HostRuns, TrainAnswer
from pyinfra_gpu.report.train.asking import ask_all

_SAME = {
    "newest": ("newest run of several hosts", "name one"),
    "ranks": ("number of ranks", "give --set ranks=N, which all of them can have"),
    "commit": ("commit", "deploy them, and commit what was changed"),
    "checkpoint": ("newest complete checkpoint", "share one folder of checkpoints among them"),
}
"""What a host says of itself -> how it is called, and what to do where another one differs."""


def lead(request: Request, verb: str, words: Sequence[str]) -> TrainAnswer:
    """Have all hosts of the request check, and start or resume one run if nothing is in the way."""
    names = members(request, request.limit[0], "--across")
    if isinstance(names, str) or len(names) < 2:
        only = f"only {', '.join(names)} is among the hosts that are to train together"
        reason = names if isinstance(names, str) else only
        return TrainAnswer(inventory=request.inventory, reasons=(reason,))
    at = words.index("--") if "--" in words else len(words)
    further = [*(word for word in words[:at] if word != "--dry"), *words[at:]]
    part: dict[str, Any] = {"hosts": names}
    checked = ask_all(request, verb, ["--dry", "--part", json.dumps(part), *further])
    if checked.exit_code != 0:
        hosts = tuple(map(_only_what_is_wrong, checked.hosts))
        reasons = (*checked.reasons, "nothing was started on any host")
        return replace(checked, hosts=hosts, reasons=reasons)
    told = {host.name: _told(host) for host in checked.hosts}
    if unlike := _unlike(told, names):
        return replace(checked, hosts=(), reasons=(unlike,))
    if "--dry" in words[:at]:  # behind `--` it is the program's own
        lines = (tuple(each for each in h.lines if each[:1] != "{") for h in checked.hosts)
        pairs = zip(checked.hosts, lines, strict=True)
        return replace(checked, hosts=tuple(replace(host, lines=own) for host, own in pairs))
    first = told[names[0]]
    address = known(request)[1].get(names[0], {}).get("smoke_across_address")
    part |= {name: first.get(name) for name in ("run", "port", "address")}
    part["address"] = address or part["address"]
    started = ask_all(request, verb, ["--part", json.dumps(part), *further])
    if started.exit_code == 0:
        return started
    ask_all(request, "stop", ["--across", str(part["run"])])
    reason = f"{part['run']} did not start on all hosts, and was ended on the others"
    return replace(started, reasons=(*started.reasons, reason))


def _told(host: HostRuns) -> dict[str, Any]:
    """Return the JSON that a launcher printed for the controller."""
    for line in host.lines:
        with suppress(ValueError):
            if line.startswith("{") and isinstance(found := json.loads(line), dict):
                return found
    return {}


def _unlike(told: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> str | None:
    for name, each in told.items():
        together = each.get("across")
        if isinstance(together, list) and {*together} != {*names}:
            whose = f"run {each.get('run')} of {name} is one of {', '.join(map(str, together))}"
            return f"{whose} together, and the group has {', '.join(names)}: name those hosts"
    for what, (called, remedy) in _SAME.items():
        values = {name: str(each.get(what))[:40] for name, each in told.items()}
        if len({*values.values()}) > 1:
            shown = ", ".join(f"{name} {value}" for name, value in values.items())
            return f"the hosts do not have the same {called} ({shown}): {remedy}"
    return None


def _only_what_is_wrong(host: HostRuns) -> HostRuns:
    if host.ok and host.reason is None:
        return replace(host, lines=("nothing is in the way here",))
    at = next((n for n, line in enumerate(host.lines) if line.startswith("this run ")), 0)
    return replace(host, lines=host.lines[at:])
