"""Asking all hosts of an inventory at once, in this process; each answer is of one host alone.

Through pyinfra's own API: the same inventory, data, connection and privileges as a deploy. Nothing
is ever asked of the person at the terminal.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM
from typing import TYPE_CHECKING, Any, TypeVar

import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop
from pyinfra import logger
from pyinfra.api import Config, State
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_config, ctx_host, ctx_state
from rich.console import Console
from rich.live import Live
from rich.text import Text

from pyinfra_gpu.engine import command_line
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.engine.look import Unanswered, answer, never_asking, reach
from pyinfra_gpu.host_names import brief
from pyinfra_gpu.report.check.answer import Answer, HostAnswer, judge
from pyinfra_gpu.text import columns, shortened

if TYPE_CHECKING:
    from pyinfra.api.host import Host

    from pyinfra_gpu.spec import HostSpec

T = TypeVar("T")
Question = Callable[[State, "Host", "HostSpec"], T | Unanswered]
DEPLOY = "deploy.py"
_AT_ONCE = 200  # hosts: each has three open files, and a process may have 1,024
_GOODBYE_S = 2.0
"""Seconds for all connections to be closed in; a host that is gone does not hold the answer up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """Which hosts to ask, in pyinfra's own words.

    + inventory: a file or names of hosts; limit, exclude: names, groups or patterns
    + data: KEY=VALUE, over what group_data and the inventory declare
    + sudo_password: the one that sudo wants on all hosts, None where it wants none
    """

    inventory: str
    limit: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    sudo_password: str | None = None

    @property
    def arguments(self) -> list[str]:
        """The command line of pyinfra that looks at the same hosts."""
        options = {"--limit": self.limit, "--exclude": self.exclude, "--data": self.data}
        chosen = [(option, value) for option, values in options.items() for value in values]
        return ["--dry", "--json", *chain(*chosen), self.inventory, DEPLOY]


def run(request: Request, answers: dict[str, HostAnswer | Unanswered] | None = None) -> Answer:
    """Probe the hosts and judge them; never writes to a host.

    + answers: see `ask`

    What is wrong with the inventory as a whole becomes a reason of the whole answer.
    """
    checked = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    started = time.monotonic()
    found, reasons = ask(request, look_at, answers)
    hosts = hosts_of(found)
    if not reasons and all(host.unreachable for host in hosts):
        reasons = ("no host could be reached",)
    took = time.monotonic() - started
    return Answer(
        inventory=request.inventory, checked=checked, seconds=took, hosts=hosts, reasons=reasons
    )


def look_at(state: State, host: Host, spec: HostSpec) -> HostAnswer | Unanswered:
    """Probe one host and judge it."""
    seen = answer(state, host, spec)
    return seen if isinstance(seen, Unanswered) else judge(spec, seen)


def hosts_of(answers: Mapping[str, HostAnswer | Unanswered]) -> tuple[HostAnswer, ...]:
    """Return each host's answer; one that gave none is undetermined, with the reason."""
    return tuple(
        HostAnswer(name=name, problem=each.reason, unreachable=each.unreachable)
        if isinstance(each, Unanswered)
        else each
        for name, each in answers.items()
    )


def ask(
    request: Request, question: Question[T], answers: dict[str, T | Unanswered] | None = None
) -> tuple[dict[str, T | Unanswered], tuple[str, ...]]:
    """Ask every host of a request the same, all at once.

    On a terminal a line says which hosts have not answered yet.

    + question: asks one host; what it raises is this host's answer, and no other's
    + answers: gets each answer as it comes, for whoever is interrupted

    Returns host -> answer in the inventory's order, and what is wrong with the request.
    """
    answers = {} if answers is None else answers
    ended = command_line.ended_by(SIGINT, SIGTERM, SIGHUP)
    # Without a thread that draws it again: it would not know of gevent's.
    line = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
    with ended, never_asking(), line, _run(request) as state:
        if not Path(DEPLOY).is_file():
            return {}, (f"there is no {DEPLOY} in {Path.cwd()}: run this in the project's folder",)
        if problems := command_line.problems(request.arguments):
            return {}, tuple(problems)
        inventory, hosts = command_line.selected(request.arguments)
        config: Config = ctx_config.get()  # type: ignore[no-untyped-call]
        config.PARALLEL = max(min(len(hosts), _AT_ONCE), 1)
        state.init(inventory, config, initial_limit=hosts)
        state.set_stage(StateStage.Prepare)

        def one(host: Host) -> tuple[str, T | Unanswered]:
            return host.name, asked(state, host, question)

        try:
            for name, each in state.pool.imap_unordered(one, hosts):
                answers[name] = each
                if waiting := {host.name for host in hosts} - answers.keys():
                    text = f"{len(answers)} of {len(hosts)} hosts have answered; waiting for"
                    text = shortened(f"{text} {brief(waiting)}", columns() - 1)
                    line.update(Text(text), refresh=True)
        finally:
            # Not waited for: a host that does not answer must not keep Ctrl-C from ending this.
            state.pool.kill(block=False)
            goodbyes = [gevent.spawn(host.disconnect) for host in hosts if host.connected]
            gevent.joinall(goodbyes, timeout=_GOODBYE_S)
        return {host.name: answers[host.name] for host in hosts}, ()


def asked(state: State, host: Host, question: Question[T]) -> T | Unanswered:
    """Return one host's answer to a question, given what is declared for it."""
    try:
        with ctx_host.use(host):
            return question(state, host, declared(host))
    except Exception as error:  # one host's failure is one host's failure
        why = shortened(f"{type(error).__name__}: {error}", 300)
        return Unanswered(reason=f"pyinfra-gpu failed there ({why}): please report this")


def run_program(
    state: State, host: Host, program: str, user: dict[str, Any], *, seconds: float
) -> list[str] | Unanswered:
    """Run a program of ours on a host as a user, and return the lines that it prints.

    + seconds: for all of that
    """
    said = reach(state, host, program, user, seconds=seconds)
    if isinstance(said, Unanswered):
        return said
    return [*said.stdout] if said.ok else Unanswered(reason="; ".join(said.lines[-3:]))


def known(request: Request) -> tuple[tuple[str, ...], Mapping[str, Mapping[str, Any]]]:
    """Return an inventory's groups, and name -> data of the hosts that are meant; none contacted.

    Both are empty where it cannot be read.
    """
    with suppress(Exception), _run(request):
        inventory, hosts = command_line.selected(request.arguments)
        groups = tuple(str(each) for each in inventory.groups if each != "all")
        return groups, {host.name: host.data.dict() for host in hosts}  # type: ignore[no-untyped-call]
    return (), {}


@contextmanager
def _run(request: Request) -> Iterator[State]:
    """Give pyinfra what it keeps of a run, from the inventory's files on; it prints nothing."""
    config = Config(SUDO_PASSWORD=request.sudo_password)  # type: ignore[no-untyped-call]
    state = State(check_for_changes=False)
    state.cwd = str(Path.cwd())
    if state.cwd not in sys.path:  # inventories may import what lies beside them
        sys.path.append(state.cwd)
    for each in (logger, logging.getLogger("paramiko")):
        each.addHandler(logging.NullHandler())  # or Python would print their warnings and errors
    with ctx_config.use(config), ctx_state.use(state):
        yield state
