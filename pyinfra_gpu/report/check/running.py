"""Looking at all hosts of an inventory at once, in this process, and judging each as it answers.

Through pyinfra's own API: the same inventory, data, connection and privileges as a deploy. Nothing
is ever asked of the person at the terminal, and nothing is written on a host.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
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
from pyinfra_gpu.engine.look import COMPARE_S, Unanswered, answer, never_asking
from pyinfra_gpu.host_names import brief
from pyinfra_gpu.report.check.answer import Answer, HostAnswer, judge
from pyinfra_gpu.text import columns, shortened

if TYPE_CHECKING:
    from pyinfra.api.host import Host

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

T = TypeVar("T")
DEPLOY = "deploy.py"
_AT_ONCE = 200  # hosts: each has three open files, and a process may have 1,024
_GOODBYE_S = 2.0
"""Seconds for all connections to be closed in; a host that is gone does not hold the answer up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What to check, in pyinfra's own words.

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
        return ["--dry", "--json", *(w for pair in chosen for w in pair), self.inventory, DEPLOY]


def run(request: Request, told: list[HostAnswer] | None = None) -> Answer:
    """Probe the hosts, all at once, and judge them; never writes to a host.

    On a terminal a line says which hosts have not answered yet.

    + told: gets each host's answer as it comes

    Whatever goes wrong with a host becomes that host's answer, whose verdict is "unknown", with
    the reason; what is wrong with the inventory as a whole becomes a reason of the whole answer.
    """
    checked = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    started = time.monotonic()
    told = [] if told is None else told
    # Without a thread that draws it again: it would not know of gevent's.
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as line:

        def arrived(host: HostAnswer, names: Sequence[str]) -> None:
            told.append(host)
            if waiting := {*names} - {each.name for each in told}:
                text = f"{len(told)} of {len(names)} hosts have answered; waiting for"
                line.update(
                    Text(shortened(f"{text} {brief(waiting)}", columns() - 1)), refresh=True
                )

        names, reasons = visit(request, look_at, arrived)
    hosts = tuple(sorted(told, key=lambda host: names.index(host.name)))
    if not reasons and all(host.unreachable for host in hosts):
        reasons = ("no host could be reached",)
    took = time.monotonic() - started
    return Answer(
        inventory=request.inventory, checked=checked, seconds=took, hosts=hosts, reasons=reasons
    )


def visit(
    request: Request, one: Callable[[State, Host], T], arrived: Callable[[T, Sequence[str]], None]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Do one thing at every host of a request, at all of them at once.

    + one: must not raise; + arrived: called with what it returned, and the names of all hosts

    Returns the names of the hosts in the inventory's order, and what is wrong with the request.
    """
    with command_line.ended_by(SIGINT, SIGTERM, SIGHUP), never_asking(), _run(request) as state:
        if not Path(DEPLOY).is_file():
            return (), (f"there is no {DEPLOY} in {Path.cwd()}: run this in the project's folder",)
        command_line.ensure_ssh_folder()
        if problems := command_line.problems(request.arguments):
            return (), tuple(problems)
        inventory, hosts = command_line.selected(request.arguments)
        config: Config = ctx_config.get()  # type: ignore[no-untyped-call]
        config.PARALLEL = max(min(len(hosts), _AT_ONCE), 1)
        state.init(inventory, config, initial_limit=hosts)
        state.set_stage(StateStage.Prepare)
        names = tuple(host.name for host in hosts)
        try:
            for each in state.pool.imap_unordered(partial(one, state), hosts):
                arrived(each, names)
        finally:
            # Not waited for: a host that does not answer must not keep Ctrl-C from ending this.
            state.pool.kill(block=False)
            goodbyes = [gevent.spawn(host.disconnect) for host in hosts if host.connected]
            gevent.joinall(goodbyes, timeout=_GOODBYE_S)
        return names, ()


def members(request: Request, group: str, option: str) -> tuple[str, ...] | str:
    """Return the hosts of a group, else one sentence why there are none; none is contacted.

    + option: by which the group was given
    """
    with _run(request):
        return command_line.members(request.arguments, group, option)


def known(request: Request) -> tuple[tuple[str, ...], Mapping[str, Mapping[str, Any]]]:
    """Return an inventory's groups, and name -> data of the hosts that are meant; none contacted.

    Both are empty where it cannot be read: whoever asks completes words, and has none then.
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


def look_at(state: State, host: Host) -> HostAnswer:
    """Probe one host and judge it."""
    judged = probed(state, host, judge)
    if isinstance(judged, HostAnswer):
        return judged
    return HostAnswer(
        name=host.name,
        rehearsal=host.data.get("rehearsal") is True,
        problem=judged.reason,
        unreachable=judged.unreachable,
    )


def probed(state: State, host: Host, use: Callable[[HostSpec, Record], T]) -> T | Unanswered:
    """Return what `use` makes of what is declared for a host, and of what is there.

    Whatever goes wrong is this host's answer, and no other's.
    """
    try:
        with ctx_host.use(host):
            spec = declared(host)
            seen = answer(state, host, spec, compare_s=COMPARE_S)
            if isinstance(seen, Unanswered):
                return seen
            return use(spec, seen)
    except Exception as error:  # one host's failure is one host's failure
        text = f"pyinfra-gpu failed there ({type(error).__name__}: {error}): please report this"
        return Unanswered(reason=text)
