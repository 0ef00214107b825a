"""A run of several hosts: all check, then all start, and one that does not come up ends all.

The first host begins, and tells at which port it waits; the others are told that port and a token.
They then find each other by themselves, so the controller may go.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop
from pyinfra.api.command import StringCommand
from pyinfra.context import ctx_host

from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.engine.look import Unanswered, bounded_command
from pyinfra_gpu.engine.look import reach as reached
from pyinfra_gpu.engine.privilege import as_declared_owner
from pyinfra_gpu.engine.reach import addresses
from pyinfra_gpu.engine.together import Together
from pyinfra_gpu.report.check.running import Request, visit
from pyinfra_gpu.report.train.answer import HostRuns, TrainAnswer
from pyinfra_gpu.report.train.asking import ask, ask_all

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

_PATIENCE_S = 120.0
"""For another host's word; a start waits for a worktree, which may be large."""
_COMES_UP_S = 75.0
"""More than the hosts themselves wait for each other."""
_POLL_S = 1.0
_ADDRESSES_S = 30.0


def start_across(request: Request, words: Sequence[str]) -> TrainAnswer:
    """Start one run on all hosts of a request together, or on none; never raises."""
    checked = ask_all(request, "start", ["--dry", "--hosts", "2", *words])
    names = tuple(host.name for host in checked.hosts)
    if checked.exit_code != 0:
        return replace(checked, hosts=tuple(map(_only_what_is_wrong, checked.hosts)))
    if len(names) < 2:
        only = f"only {names[0]} is" if names else "no host is"
        return replace(checked, reasons=(f"{only} among the hosts that are to train together",))
    led = _Led(names, tuple(words))
    answers: dict[str, HostRuns] = {}

    def one(state: State, host: Host) -> HostRuns:
        try:
            with ctx_host.use(host):
                return led.take_part(state, host)
        except Exception as error:  # one host's failure must not keep the others waiting
            return HostRuns(name=host.name, ok=False, reason=f"{type(error).__name__}: {error}")
        finally:
            led.meeting.leave(host.name)

    def arrived(answer: HostRuns, _: Sequence[str]) -> None:
        answers[answer.name] = answer

    _, reasons = visit(request, one, arrived)
    hosts = tuple(answers[name] for name in names if name in answers)
    return TrainAnswer(inventory=request.inventory, hosts=hosts, reasons=reasons)


def _only_what_is_wrong(host: HostRuns) -> HostRuns:
    """Return a host's answer to the check without the command that it would have run."""
    return replace(host, lines=("nothing is in the way here",)) if host.ok else host


class _Led:
    """A start as it is led: what the hosts tell one another through the controller."""

    def __init__(self, names: Sequence[str], words: Sequence[str]) -> None:
        self.names, self.words = names, words
        self.meeting = Together(set)

    def take_part(self, state: State, host: Host) -> HostRuns:
        """Start the run on one host; where it does not come up on all, end it."""
        answer, run = self._started(state, host)
        self.meeting.say("started", host.name, run is not None)
        told = self.meeting.hear("started", self.names, _PATIENCE_S)
        missing = [name for name in self.names if not told.get(name)]
        if run is None:
            return answer
        if missing:
            why = f"it did not start on {', '.join(missing)}"
        elif (state_now := self._came_up(state, host, run)) in ("running", "finished"):
            return replace(answer, lines=(f"{run} is on, with {self._others(host)}",))
        else:
            why = f"it is {state_now}: see `train why {run}` there"
        ask(state, host, "stop", [run])
        return replace(answer, ok=False, lines=(f"{run} was ended: {why}",))

    def _others(self, host: Host) -> str:
        return ", ".join(name for name in self.names if name != host.name)

    def _started(self, state: State, host: Host) -> tuple[HostRuns, str | None]:
        """Start it on one host; return the answer, and the run's name where it is on."""
        first: dict[str, Any] = {"run": None, "commit": None, "port": 0}
        if host.name == self.names[0]:
            first["addresses"] = _addresses(state, host)
        else:
            said = self.meeting.hear("place", self.names[:1], _PATIENCE_S)
            if not said.get(self.names[0]):
                waits = f"{self.names[0]}, which leads, did not start"
                return HostRuns(name=host.name, ok=False, lines=(waits,)), None
            first = said[self.names[0]]
        part = {**first, "hosts": self.names, "host": host.name, "token": self.meeting.token}
        words = ["--hosts", str(len(self.names)), *self.words]
        answer = ask(state, host, "start", words, json.dumps(part))
        try:
            told = json.loads(next(line for line in answer.lines if line.startswith("{")))
            place = {name: told[name] for name in ("run", "commit", "port")}
        except (StopIteration, ValueError, KeyError):
            self.meeting.say("place", host.name, None)
            return replace(answer, ok=False), None
        if host.name == self.names[0]:
            self.meeting.say("place", host.name, {**place, "addresses": first["addresses"]})
        return answer, str(place["run"])

    def _came_up(self, state: State, host: Host, run: str) -> str:
        """Wait until all hosts have met; return what became of the run here."""
        until = time.monotonic() + _COMES_UP_S
        found = "starting"
        while found == "starting" and time.monotonic() < until:
            listed = ask(state, host, "list", [])
            found = next((each.outcome for each in listed.runs if each.run == run), "not known")
            if found == "starting":
                gevent.sleep(_POLL_S)
        return found


def _addresses(state: State, host: Host) -> list[str]:
    """Return where others may reach a host: what is declared, else its own IPv4 addresses."""
    spec = declared(host)
    if spec.smoke.across is not None and spec.smoke.across.address:
        return [spec.smoke.across.address]

    def run() -> tuple[bool, Any]:
        given = {**as_declared_owner(spec), "_success_exit_codes": [0]}
        command = StringCommand("hostname -I")
        return bounded_command(state, host, command, given, seconds=_ADDRESSES_S)

    said = reached(host, run, seconds=_ADDRESSES_S)
    if isinstance(said, Unanswered) or not said[0]:
        return []
    found = addresses(" ".join(said[1].stdout_lines).split())
    return [each for each in found if ":" not in each]
