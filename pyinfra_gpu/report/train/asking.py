"""Words for the launchers of hosts: passed through, as the owner, with a deadline and a bound."""

from __future__ import annotations

import getpass
import re
import shlex
import socket
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyinfra.api import StringCommand
from pyinfra.context import ctx_host

from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.engine.look import Unanswered, bounded_command, reach
from pyinfra_gpu.engine.privilege import as_declared_owner
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.report.check.running import Request, visit
from pyinfra_gpu.report.train.answer import HostRuns, TrainAnswer, read_runs, read_why
from pyinfra_gpu.text import columns, one_line, shortened

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.spec import HostSpec

MOST_LINES = 2000
_LONGEST_LINE = 2000
_LISTS = ("list", "watch")
_BEGIN = ("start", "try", "resume")
_SLOW = (*_BEGIN, "stop")  # they wait for what they begin or end; the others read files
_NO_RUN = re.compile(
    r"(?:no run (?:of several hosts )?is on|there is no run|run \S{1,80} has ended already)\b"
)
_NO_LAUNCHER = 3


def ask_all(request: Request, verb: str, words: Sequence[str] = ()) -> TrainAnswer:
    """Ask the launchers of all hosts of a request at once."""
    answers: dict[str, HostRuns] = {}

    def one(state: State, host: Host) -> HostRuns:
        return ask(state, host, verb, words, inventory=request.inventory)

    def arrived(answer: HostRuns, names: Sequence[str]) -> None:
        answers[answer.name] = answer

    names, reasons = visit(request, one, arrived)
    hosts = tuple(answers[name] for name in names)
    if request.limit and all(host.absent for host in hosts):
        why = (each.reason or _undeclared(each.name, request.inventory) for each in hosts)
        hosts = tuple(replace(each, reason=text) for each, text in zip(hosts, why, strict=True))
    return TrainAnswer(inventory=request.inventory, hosts=hosts, reasons=reasons)


def ask(
    state: State,
    host: Host,
    verb: str,
    words: Sequence[str],
    stdin: str | None = None,
    *,
    inventory: str,
) -> HostRuns:
    """Ask one host's launcher. Never raises."""
    try:
        with ctx_host.use(host):
            return _asked(state, host, declared(host), verb, words, stdin, inventory)
    except Exception as error:
        reason = f"it could not be asked ({type(error).__name__}: {error})"
        return HostRuns(name=host.name, reason=shortened(reason, 300))


def _asked(
    state: State,
    host: Host,
    spec: HostSpec,
    verb: str,
    words: Sequence[str],
    stdin: str | None,
    inventory: str,
) -> HostRuns:
    name, lists = host.name, verb in _LISTS
    if spec.training is None and verb in (*_LISTS, *_BEGIN):
        return HostRuns(
            name=name, absent=True, reason=None if lists else _undeclared(name, inventory)
        )
    command = [spec.paths.train, "list" if lists else verb, *words]
    command[2:2] = ["--json"] * (lists or verb == "why")
    known = shlex.join(["env", f"PYINFRA_GPU_TRAIN_BY={_who()}", f"COLUMNS={columns()}"])
    text = f"test -x {shlex.quote(command[0])} || exit {_NO_LAUNCHER}; exec {known} "
    seconds = deadlines.SERVICE if verb in _SLOW else spec.look_timeout_s

    def run() -> tuple[bool, Any]:
        given = {**as_declared_owner(spec), "_success_exit_codes": [0], "_stdin": stdin}
        whole = StringCommand(text + shlex.join(command))
        return bounded_command(state, host, whole, given, seconds=seconds)

    said = reach(host, run, seconds=seconds)
    if isinstance(said, Unanswered):
        return HostRuns(name=name, reason=said.reason)
    ok, output = said
    printed = "\n".join(output.stdout_lines)
    if ok and lists:
        runs = read_runs(printed)
        if isinstance(runs, Unknown):
            return HostRuns(name=name, reason=f"its list cannot be read: {runs.reason}")
        return HostRuns(name=name, runs=runs[0], reason=runs[1])
    if ok and verb == "why":
        why = read_why(printed)
        if isinstance(why, Unknown):
            return HostRuns(name=name, reason=f"what it explains cannot be read: {why.reason}")
        return HostRuns(name=name, explained=why)
    return _printed(name, spec, inventory, ok, lists, output)


def _printed(
    name: str, spec: HostSpec, inventory: str, ok: bool, lists: bool, output: Any
) -> HostRuns:
    """Return what a launcher said in words."""
    errors = [_line(each) for each in output.stderr_lines[-MOST_LINES:] if each.strip()]
    if not (ok or output.stdout_lines or errors):
        without = spec.training is None
        reason = _undeclared(name, inventory) if without else (
            f"there is no launcher at {spec.paths.train} of {name}:"
            f" run `pyinfra {shlex.quote(inventory)} deploy.py`"
        )  # fmt: skip
        return HostRuns(name=name, reason=reason, absent=True, without=without)
    if lists:
        reason = errors[-1] if errors else "its list cannot be read: it said no reason"
        return HostRuns(name=name, reason=shortened(reason, 300))
    told = (*map(_line, output.stdout_lines[-MOST_LINES:]), *errors)
    without = not ok and len(told) == 1 and _NO_RUN.match(told[0]) is not None
    return HostRuns(name=name, lines=told, ok=ok, without=without)


def _line(text: str) -> str:
    text = text[:_LONGEST_LINE]
    return " " * (len(text) - len(text.lstrip(" "))) + one_line(text)


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):
        return "somebody"


def _undeclared(host: str, inventory: str) -> str:
    return (
        f"no training is declared for {host}: declare training_repo and training_commit for it,"
        f" and run `pyinfra {shlex.quote(inventory)} deploy.py`"
    )
