"""Words for the launchers of hosts: passed through, as the owner, with a deadline and a bound."""

from __future__ import annotations

import getpass
import json
import re
import shlex
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyinfra.api import StringCommand
from pyinfra.context import ctx_host

from pyinfra_gpu.diagnosis.host_facts import facts_of
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.engine.look import Unanswered, answer, bounded_command, reach
from pyinfra_gpu.engine.privilege import as_declared_owner
from pyinfra_gpu.report.check.running import Request, visit
from pyinfra_gpu.report.train.answer import HostRuns, Runs, TrainAnswer, Why, read
from pyinfra_gpu.report.train.render import indented
from pyinfra_gpu.text import columns, shortened

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.spec import HostSpec

LISTS = ("list", "watch")
BEGIN = ("start", "try", "resume")
_SLOW = (*BEGIN, "stop")  # they wait for what they begin or end; the others read files
_MOST_LINES = _LONGEST_LINE = 2000
_NO_RUN = re.compile(
    r"(?:no run (?:of several hosts )?is running|there is no run|run \S{1,80} has ended already)\b"
)
_NO_LAUNCHER = 3


def ask_all(request: Request, verb: str, words: Sequence[str] = ()) -> TrainAnswer:
    """Ask the launchers of all hosts of a request at once."""
    answers: dict[str, HostRuns] = {}

    def one(state: State, host: Host) -> HostRuns:
        try:
            with ctx_host.use(host):
                return _asked(request, state, host, declared(host), verb, words)
        except Exception as error:
            reason = f"it could not be asked ({type(error).__name__}: {error})"
            return HostRuns(name=host.name, reason=shortened(reason, 300))

    def arrived(answer: HostRuns, names: Sequence[str]) -> None:
        answers[answer.name] = answer

    names, reasons = visit(request, one, arrived)
    hosts = tuple(answers[name] for name in names)
    return TrainAnswer(inventory=request.inventory, hosts=hosts, reasons=reasons)


def _asked(
    request: Request, state: State, host: Host, spec: HostSpec, verb: str, words: Sequence[str]
) -> HostRuns:
    name, lists, form = host.name, verb in LISTS, Runs if verb in LISTS else Why
    deploy = f"run `pyinfra {shlex.quote(request.inventory)} deploy.py`"
    undeclared = f"no training is declared for {name}: declare training_repo and training_commit"
    undeclared += f" for it, and {deploy}"
    if spec.training is None and (lists or verb in BEGIN):
        silent = lists and not request.limit
        return HostRuns(name=name, absent=True, reason=None if silent else undeclared)
    as_json = lists or verb == "why"
    command = [
        spec.paths.train,
        "list" if lists else verb,
        *(["--json"] if as_json else []),
        *words,
    ]
    variables = {"PYINFRA_GPU_TRAIN_BY": _who(), "PYINFRA_GPU_HOST": name, "COLUMNS": columns()}
    if verb == "why":  # what decides between two causes
        seen = answer(state, host, spec)
        facts = {} if isinstance(seen, Unanswered) else facts_of(seen)
        variables["PYINFRA_GPU_HOST_FACTS"] = json.dumps(facts)
    known = shlex.join(["env", *(f"{key}={value}" for key, value in variables.items())])
    program = shlex.quote(spec.paths.train)
    text = f"test -x {program} || exit {_NO_LAUNCHER}; exec {known} {shlex.join(command)}"
    seconds = deadlines.SERVICE if verb in _SLOW else spec.look_timeout_s

    def run() -> tuple[bool, Any]:
        given = {**as_declared_owner(spec), "_success_exit_codes": [0]}
        return bounded_command(state, host, StringCommand(text), given, seconds=seconds)

    said = reach(host, run, seconds=seconds)
    if isinstance(said, Unanswered):
        return HostRuns(name=name, reason=said.reason)
    ok, output = said
    if ok and as_json:
        told = read(form, "\n".join(output.stdout_lines))
        if isinstance(told, Runs):
            return HostRuns(name=name, runs=told.runs)
        if isinstance(told, Why):
            return HostRuns(name=name, explained=told)
        return HostRuns(name=name, reason=f"what it says cannot be read: {told.reason}")
    errors = [
        indented(each[:_LONGEST_LINE])
        for each in output.stderr_lines[-_MOST_LINES:]
        if each.strip()
    ]
    lines = (indented(each[:_LONGEST_LINE]) for each in output.stdout_lines[-_MOST_LINES:])
    printed = (*lines, *errors)
    if not (ok or printed):
        without = spec.training is None
        reason = undeclared if without else f"there is no launcher at {spec.paths.train}: {deploy}"
        return HostRuns(name=name, reason=reason, absent=True, without=without)
    if lists:
        reason = errors[-1] if errors else "it says nothing of its runs"
        return HostRuns(name=name, reason=shortened(reason, 300))
    without = not ok and len(printed) == 1 and _NO_RUN.match(printed[0]) is not None
    return HostRuns(name=name, lines=printed, ok=ok, without=without)


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):
        return "somebody"
