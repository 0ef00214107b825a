"""Asking each host's launcher, at all hosts at once: as the owner, bounded, and each for itself."""

from __future__ import annotations

import getpass
import shlex
import socket
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyinfra.api.command import StringCommand
from pyinfra.context import ctx_host

from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.engine.look import Unanswered, bounded_command, reach
from pyinfra_gpu.engine.privilege import as_declared_owner
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.on_host.train.calling import VARIABLE, Caller, says_no_run
from pyinfra_gpu.report.check.running import Request, visit
from pyinfra_gpu.report.train.answer import HostRuns, TrainAnswer, read_explanation, read_runs
from pyinfra_gpu.report.train.render import indented
from pyinfra_gpu.text import columns, shortened

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.spec import HostSpec

MOST_LINES = 2000
_LONGEST_LINE = 2000  # characters
_LONGEST_REASON = 300
_LISTS = ("list", "watch")
_BEGIN = ("start", "resume")
_SLOW = ("start", "resume", "stop")
"""They wait for what they begin or end; the others read files."""


def ask_all(request: Request, verb: str, words: Sequence[str] = (), group: str = "") -> TrainAnswer:
    """Have the launcher of every host do something, and return what they say.

    + verb: of the launcher's; "watch" is asked as "list"
    + words: further words of its command line
    + group: whose hosts have, or are to have, one run together

    Whatever goes wrong with a host is that host's answer, and no other's.
    """
    answers: dict[str, HostRuns] = {}

    def one(state: State, host: Host) -> HostRuns:
        return ask(state, host, verb, words, caller=asker(request.inventory, group))

    def arrived(answer: HostRuns, names: Sequence[str]) -> None:
        answers[answer.name] = answer

    names, reasons = visit(request, one, arrived)
    hosts = tuple(answers[name] for name in names)
    if request.limit and all(host.absent for host in hosts):
        # Whoever names hosts means to see something; of all hosts those that train are shown.
        hosts = tuple(
            replace(each, reason=each.reason or _undeclared(each.name, request.inventory))
            for each in hosts
        )
    return TrainAnswer(inventory=request.inventory, hosts=hosts, reasons=reasons)


def ask(
    state: State,
    host: Host,
    verb: str,
    words: Sequence[str],
    stdin: str | None = None,
    *,
    caller: Caller,
) -> HostRuns:
    """Ask one host; never raises.

    + caller: who asks; which host is asked is added here
    + stdin: what the launcher is told beside its command line; secrets go this way
    """
    try:
        with ctx_host.use(host):
            return _asked(state, host, declared(host), verb, words, stdin, caller)
    except Exception as error:  # one host's failure is one host's failure
        reason = f"it could not be asked ({type(error).__name__}: {error})"
        return HostRuns(name=host.name, reason=shortened(reason, _LONGEST_REASON))


def _asked(
    state: State,
    host: Host,
    spec: HostSpec,
    verb: str,
    words: Sequence[str],
    stdin: str | None,
    caller: Caller,
) -> HostRuns:
    lists = verb in _LISTS
    if spec.training is None and verb in (*_LISTS, *_BEGIN):
        # What was begun before somebody took the declaration back can still be ended and explained.
        reason = None if lists else _undeclared(host.name, caller.inventory)
        return HostRuns(name=host.name, absent=True, reason=reason)
    command, seconds = _command(host.name, spec, verb, words, caller)

    def run() -> tuple[bool, Any]:
        given = {**as_declared_owner(spec), "_success_exit_codes": [0], "_stdin": stdin}
        return bounded_command(state, host, command, given, seconds=seconds)

    said = reach(host, run, seconds=seconds)
    if isinstance(said, Unanswered):
        return HostRuns(name=host.name, reason=said.reason)
    ok, output = said
    if ok and lists:
        return _listed(host.name, "\n".join(output.stdout_lines))
    if ok and verb == "why":
        return _explained(host.name, "\n".join(output.stdout_lines))
    lines = [indented(line[:_LONGEST_LINE]) for line in output.stderr_lines if line.strip()]
    if not ok and not output.stdout_lines and not lines:
        return HostRuns(
            name=host.name,
            reason=_no_launcher(spec, caller.inventory),
            absent=True,
            without=spec.training is None,
        )
    if lists:
        reason = lines[-1] if lines else "its list cannot be read: it said no reason"
        return HostRuns(name=host.name, reason=shortened(reason, _LONGEST_REASON))
    printed = [line[:_LONGEST_LINE] for line in output.stdout_lines[-MOST_LINES:]]
    told = (*printed, *lines[-MOST_LINES:])
    without = not ok and len(told) == 1 and says_no_run(told[0])
    return HostRuns(name=host.name, lines=told, ok=ok, without=without)


def _command(
    name: str, spec: HostSpec, verb: str, words: Sequence[str], caller: Caller
) -> tuple[StringCommand, float]:
    """Return the command for a host, and the seconds that it has."""
    lists = verb in _LISTS
    json_ = ["--json"] if lists or verb == "why" else []
    command = [spec.paths.train, "list" if lists else verb, *json_, *words]
    # The launcher that is not there is a sentence of ours, not the shell's.
    known = shlex.join(["env", *_surroundings(name, caller)])
    text = f"test -x {shlex.quote(command[0])} || exit {_ABSENT}; exec {known} "
    seconds = deadlines.SERVICE if verb in _SLOW else spec.look_timeout_s
    return StringCommand(text + shlex.join(command)), seconds


def _listed(name: str, printed: str) -> HostRuns:
    found = read_runs(printed)
    if isinstance(found, Unknown):
        return HostRuns(name=name, reason=f"its list cannot be read: {found.reason}")
    return HostRuns(name=name, runs=found.runs, reason=found.reason)


def _explained(name: str, printed: str) -> HostRuns:
    told = read_explanation(printed)
    if isinstance(told, Unknown):
        return HostRuns(name=name, reason=f"what it explains cannot be read: {told.reason}")
    return HostRuns(name=name, explained=told)


_ABSENT = 3


def asker(inventory: str, group: str = "") -> Caller:
    """Return this controller as hosts are told of it.

    + inventory, group: as they were typed
    """
    return Caller(inventory=inventory, chosen=(), group=group, who=_who())


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # a user without a name
        return ""


def _surroundings(host: str, caller: Caller) -> list[str]:
    """Return what the launcher is told of who reads its answer: how to type, and how wide it is."""
    told = replace(caller, chosen=("--limit", host)).as_text()
    return [f"{VARIABLE}={told}", f"COLUMNS={columns()}"]


def _undeclared(host: str, inventory: str) -> str:
    return (
        f"no training is declared for {host}: declare training_repo and training_commit for it, and"
        f" run `pyinfra {shlex.quote(inventory)} deploy.py`"
    )


def _no_launcher(spec: HostSpec, inventory: str) -> str:
    if spec.training is None:
        return _undeclared(spec.host, inventory)
    return (
        f"there is no launcher at {spec.paths.train} of {spec.host}: run"
        f" `pyinfra {shlex.quote(inventory)} deploy.py`"
    )
