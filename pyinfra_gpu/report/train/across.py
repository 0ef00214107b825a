"""A run of several hosts: all check, then all start, and one that does not come up ends all.

The first host begins, and tells at which port it waits; the others are told that port and a token.
They then find each other by themselves, so the controller may go.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
from pyinfra_gpu.on_host.train.calling import Caller
from pyinfra_gpu.report.check.running import Request, members, visit
from pyinfra_gpu.report.train.answer import HostRuns, TrainAnswer
from pyinfra_gpu.report.train.asking import ask, ask_all, asker

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

_PATIENCE_S = 120.0
"""For another host's word; a start waits for a worktree, which may be large."""
_COMES_UP_S = 75.0
"""More than the hosts themselves wait for each other."""
_POLL_S = 1.0
_NOTHING = "nothing was started on any host"
_ADDRESSES_S = 30.0


def lead(request: Request, verb: str, words: Sequence[str]) -> TrainAnswer:
    """Start or resume one run on all hosts of a request together, or on none; never raises.

    + request: its one limit is the group
    + verb: "start" or "resume"
    """
    inventory = request.inventory
    names = members(request, request.limit[0], "--across")
    if isinstance(names, str):
        return TrainAnswer(inventory=inventory, reasons=(names,))
    if len(names) < 2:
        only = f"only {names[0]} is among the hosts that are to train together"
        return TrainAnswer(inventory=inventory, reasons=(only,))
    dry = "--dry" in words
    further = [word for word in words if word != "--dry"]
    group = request.limit[0]
    checked = ask_all(request, verb, ["--dry", "--hosts", str(len(names)), *further], group)
    if checked.exit_code != 0:
        hosts = tuple(map(_only_what_is_wrong, checked.hosts))
        return replace(checked, hosts=hosts, reasons=(*checked.reasons, _NOTHING))
    told = {host.name: _told(host) for host in checked.hosts}
    if reason := _unlike(told, names):
        typed = {"INVENTORY": shlex.quote(inventory), "GROUP": shlex.quote(group)}
        reason = re.sub("INVENTORY|GROUP", lambda found: typed[found[0]], reason)
        return replace(checked, hosts=(), reasons=(reason,))
    if dry:
        return replace(checked, hosts=tuple(map(_for_people, checked.hosts)))
    return _led(request, verb, further, names)


def _led(request: Request, verb: str, words: Sequence[str], names: tuple[str, ...]) -> TrainAnswer:
    """Have all hosts start, each told by the first one where to meet."""
    led = _Led(names, verb, tuple(words), asker(request.inventory, request.limit[0]))
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


def _told(host: HostRuns) -> dict[str, Any]:
    """Return what a launcher said for the controller."""
    for line in host.lines:
        if line.startswith("{"):
            with suppress(ValueError):
                found = json.loads(line)
                return found if isinstance(found, dict) else {}
    return {}


def _unlike(told: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> str | None:
    """Return what is not the same on all hosts, and what to do; None where all is."""
    if reason := _other_hosts(told, names):
        return reason
    for what, called, remedy in _SAME:
        values = {name: each.get(what) for name, each in told.items()}
        if len(set(map(str, values.values()))) > 1:
            shown = ", ".join(f"{name} {str(value)[:40]}" for name, value in values.items())
            return f"the hosts do not have the same {called} ({shown}): {remedy}"
    return None


_WHICH = "say which one, as in `pyinfra-gpu train INVENTORY resume --across GROUP -- RUN`"
_SAME = (
    ("run", "newest run of several hosts", _WHICH),
    ("ranks", "number of ranks", "give --set ranks=N, which all of them can have"),
    ("commit", "commit", "run `pyinfra INVENTORY deploy.py` for them, and commit what was changed"),
    (
        "checkpoint",
        "newest complete checkpoint",
        "share one folder of checkpoints among them, or move away those that not all of them have",
    ),
)
"""What a host says of itself, how it is called, and what to do where another one says otherwise."""


def _other_hosts(told: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> str | None:
    for name, each in told.items():
        together = each.get("across")
        if isinstance(together, list) and {*together} != {*names}:
            whose = ", ".join(map(str, together))
            return (
                f"run {each.get('run')} of {name} is one of {whose} together, and the group has"
                f" {', '.join(names)}: name a group of those hosts"
            )
    return None


def _for_people(host: HostRuns) -> HostRuns:
    return replace(host, lines=tuple(line for line in host.lines if not line.startswith("{")))


def _only_what_is_wrong(host: HostRuns) -> HostRuns:
    """Return a host's answer to the check without the command that it would have run."""
    if host.reason is not None:
        return host
    if host.ok:
        return replace(host, lines=("nothing is in the way here",))
    at = next((n for n, line in enumerate(host.lines) if line.startswith("this run ")), None)
    return replace(host, lines=host.lines[at:]) if at is not None else host


class _Led:
    """A start as it is led: what the hosts tell one another through the controller."""

    def __init__(
        self, names: Sequence[str], verb: str, words: Sequence[str], caller: Caller
    ) -> None:
        self.names, self.verb, self.words, self.caller = names, verb, words, caller
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
            why = f"it is {state_now}: see `{self.caller.typed(['why', run])}`"
        self._ask(state, host, "stop", [run])
        return replace(answer, ok=False, lines=(f"{run} was ended: {why}",))

    def _ask(
        self, state: State, host: Host, verb: str, words: Sequence[str], stdin: str | None = None
    ) -> HostRuns:
        return ask(state, host, verb, words, stdin, caller=self.caller)

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
        answer = self._ask(state, host, self.verb, words, json.dumps(part))
        told = _told(answer)
        place = {name: told.get(name) for name in ("run", "commit", "port")}
        if None in place.values():
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
            listed = self._ask(state, host, "list", [])
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
