"""Words for the launchers of hosts: passed through, as the owner, with a deadline and a bound."""

from __future__ import annotations

import getpass
import json
import shlex
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyinfra_gpu.diagnosis.host_facts import facts_of
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.look import Unanswered, answer, reach
from pyinfra_gpu.engine.privilege import as_declared_owner
from pyinfra_gpu.facts import document
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.report.check.running import Request, ask, known
from pyinfra_gpu.report.train.answer import LIMIT, HostRuns, Runs, TrainAnswer, indented
from pyinfra_gpu.text import columns, shortened

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.spec import HostSpec

LISTS = ("list", "watch")
BEGIN = ("start", "try", "resume")
_SLOW = (*BEGIN, "stop")  # they wait for what they begin or end; the others read files
_MOST_LINES = 2000


def ask_all(request: Request, verb: str, words: Sequence[str] = ()) -> TrainAnswer:
    """Ask the launchers of all hosts of a request at once."""
    answers, reasons = ask(request, partial(_answer_of, request, verb, words))
    hosts = tuple(
        HostRuns(name=name, reason=each.reason) if isinstance(each, Unanswered) else each
        for name, each in answers.items()
    )
    return TrainAnswer(inventory=request.inventory, hosts=hosts, reasons=reasons)


def _answer_of(
    request: Request, verb: str, words: Sequence[str], state: State, host: Host, spec: HostSpec
) -> HostRuns | Unanswered:
    name, program, lists = host.name, spec.paths.train, verb in LISTS
    deploy = f"run `pyinfra {shlex.quote(request.inventory)} deploy.py`"
    if spec.training is None:
        undeclared = f"no training is declared for {name}: declare training_repo and"
        undeclared += f" training_commit for it, and {deploy}"
        reason = None if lists and not request.limit else undeclared
        return HostRuns(name=name, absent=True, ok=lists, reason=reason)
    who = f"{getpass.getuser()}@{socket.gethostname()}"
    variables = {"PYINFRA_GPU_TRAIN_BY": who, "PYINFRA_GPU_HOST": name, "COLUMNS": columns()}
    if verb == "why":  # what decides between two causes
        seen = answer(state, host, spec)
        facts = {} if isinstance(seen, Unanswered) else facts_of(seen)
        variables["PYINFRA_GPU_HOST_FACTS"] = json.dumps(facts)
    own = ["list", "--json", *words] if lists else [verb, *words]
    environment = [f"{key}={value}" for key, value in variables.items()]
    missing = shlex.quote(f"there is no launcher at {program}: {deploy}")
    text = f"test -x {shlex.quote(program)} || {{ echo {missing} >&2; exit 1; }};"
    text += f" exec {shlex.join(['env', *environment, program, *own])}"
    seconds = deadlines.SERVICE if verb in _SLOW else spec.look_timeout_s
    said = reach(state, host, text, as_declared_owner(spec), seconds=seconds)
    if isinstance(said, Unanswered):
        return said
    ok = said.ok
    if ok and lists:
        found = document.read(Runs, "\n".join(said.stdout), limit=LIMIT)
        if isinstance(found, Runs):
            return HostRuns(name=name, runs=found.runs)
        why = found.reason if isinstance(found, Unknown) else "it is empty"
        return HostRuns(name=name, reason=f"what it says cannot be read: {why}")
    lines = [*map(indented, said.lines[-_MOST_LINES:])]
    if lists:
        last = next((each for each in reversed(lines) if each), "it says nothing")
        return HostRuns(name=name, reason=shortened(last, 300))
    part = {} if ok and verb in ("logs", "why") else _part(lines)
    lines = [line for line in lines if not (part and line.startswith("{"))]
    return HostRuns(name=name, lines=tuple(lines), ok=ok, part=part)


def _part(lines: Sequence[str]) -> dict[str, Any]:
    """Return the JSON that a launcher printed for the controller."""
    for line in lines:
        with suppress(ValueError):
            if line.startswith("{") and isinstance(found := json.loads(line), dict):
                return found
    return {}


# -- one run that all hosts of a group train together


def lead(request: Request, verb: str, words: Sequence[str]) -> TrainAnswer:
    """Have all hosts of the request check, and start or resume one run if nothing is in the way."""
    data = known(request)[1]
    names = [*data]
    at = words.index("--") if "--" in words else len(words)
    further = [*(word for word in words[:at] if word != "--dry"), *words[at:]]
    part: dict[str, Any] = {"hosts": names}
    checked = ask_all(request, verb, ["--dry", "--part", json.dumps(part), *further])
    if checked.reasons or any(host.exit_code for host in checked.hosts):
        hosts = tuple(host for host in checked.hosts if host.exit_code != 0)
        reasons = (*checked.reasons, "nothing was started on any host")
        return replace(checked, hosts=hosts, reasons=reasons)
    parts = {host.name: host.part for host in checked.hosts}
    if unlike := _unlike(parts):
        return replace(checked, hosts=(), reasons=(unlike,))
    if "--dry" in words[:at]:  # behind `--` it is the program's own
        return checked
    first = parts[names[0]]
    address = data[names[0]].get("smoke_across_address")
    part |= {"run": first.get("run"), "port": first.get("port")}
    part["address"] = address or first.get("address")
    started = ask_all(request, verb, ["--part", json.dumps(part), *further])
    if started.exit_code == 0:
        return started
    ask_all(request, "stop", ["--across", str(part["run"])])
    reason = f"{part['run']} did not start on all hosts, and was ended on the others"
    return replace(started, reasons=(*started.reasons, reason))


def _unlike(parts: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return in what hosts differ that are to train together."""
    for what in next(iter(parts.values())).get("same", {}):
        values = {name: str(each.get("same", {}).get(what))[:40] for name, each in parts.items()}
        if len({*values.values()}) > 1:
            shown = ", ".join(f"{name} {value}" for name, value in values.items())
            return f"the hosts do not have the same {what} ({shown})"
    return None
