"""One run that all hosts of a group train together: all of them start it, or none does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop
from pyinfra.api import StringCommand
from pyinfra.context import ctx_host

from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.engine.look import Unanswered, bounded_command
from pyinfra_gpu.engine.look import reach as reached
from pyinfra_gpu.engine.privilege import as_declared_owner
from pyinfra_gpu.engine.reach import addresses
from pyinfra_gpu.engine.together import Together
from pyinfra_gpu.report.check.running import Request, members, visit
from pyinfra_gpu.report.train.answer import HostRuns, TrainAnswer
from pyinfra_gpu.report.train.asking import ask, ask_all

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

_PATIENCE_S = 120.0  # for another host's word; a start waits for a worktree, which may be large
_COMES_UP_S = 75.0  # more than the hosts themselves wait for each other
_ADDRESSES_S = 30.0
_SAME = (
    ("run", "newest run of several hosts", "name one"),
    ("ranks", "number of ranks", "give --set ranks=N, which all of them can have"),
    ("commit", "commit", "deploy them, and commit what was changed"),
    ("checkpoint", "newest complete checkpoint", "share one folder of checkpoints among them"),
)
"""What a host says of itself, how it is called, and what to do where another one says otherwise."""


def lead(request: Request, verb: str, words: Sequence[str]) -> TrainAnswer:
    """Have all hosts of the request check, and start or resume one run if nothing is in the way."""
    inventory, group = request.inventory, request.limit[0]
    names = members(request, group, "--across")
    if isinstance(names, str) or len(names) < 2:
        only = f"only {', '.join(names)} is among the hosts that are to train together"
        return TrainAnswer(
            inventory=inventory, reasons=(names if isinstance(names, str) else only,)
        )
    at = words.index("--") if "--" in words else len(words)
    dry = "--dry" in words[:at]  # behind `--` it is the program's own
    further = [*(word for word in words[:at] if word != "--dry"), *words[at:]]
    count = ["--hosts", str(len(names))]
    checked = ask_all(request, verb, ["--dry", *count, *further])
    if checked.exit_code != 0:
        hosts = tuple(map(_only_what_is_wrong, checked.hosts))
        reasons = (*checked.reasons, "nothing was started on any host")
        return replace(checked, hosts=hosts, reasons=reasons)
    if reason := _unlike({host.name: _told(host) for host in checked.hosts}, names):
        return replace(checked, hosts=(), reasons=(reason,))
    if dry:
        plain = (tuple(line for line in h.lines if not line.startswith("{")) for h in checked.hosts)
        pairs = zip(checked.hosts, plain, strict=True)
        return replace(checked, hosts=tuple(replace(host, lines=own) for host, own in pairs))
    led = _Led(names, verb, [*count, *further], inventory)
    answers: dict[str, HostRuns] = {}

    def one(state: State, host: Host) -> HostRuns:
        try:
            with ctx_host.use(host):
                return led.take_part(state, host)
        except Exception as error:
            return HostRuns(name=host.name, ok=False, reason=f"{type(error).__name__}: {error}")
        finally:
            led.meeting.leave(host.name)

    def arrived(answer: HostRuns, _: Sequence[str]) -> None:
        answers[answer.name] = answer

    _, reasons = visit(request, one, arrived)
    hosts = tuple(answers[name] for name in names if name in answers)
    return TrainAnswer(inventory=inventory, hosts=hosts, reasons=reasons)


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
    for what, called, remedy in _SAME:
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


@dataclass
class _Led:
    """A start that hosts make together; the first one chooses the name, the port and the commit."""

    names: tuple[str, ...]
    verb: str
    words: list[str]
    inventory: str
    meeting: Together = field(default_factory=lambda: Together(set))

    def take_part(self, state: State, host: Host) -> HostRuns:
        answer, run = self._started(state, host)
        self.meeting.say("started", host.name, run is not None)
        told = self.meeting.hear("started", self.names, _PATIENCE_S)
        missing = [name for name in self.names if not told.get(name)]
        if run is None:
            return answer
        others = ", ".join(name for name in self.names if name != host.name)
        if missing:
            why = f"it did not start on {', '.join(missing)}"
        elif (now := self._came_up(state, host, run)) in ("running", "finished"):
            return replace(answer, lines=(f"{run} is on, with {others}",))
        else:
            why = f"it is {now}: see `pyinfra-gpu train {self.inventory} why {run}`"
        ask(state, host, "stop", [run], inventory=self.inventory)
        return replace(answer, ok=False, lines=(f"{run} was ended: {why}",))

    def _started(self, state: State, host: Host) -> tuple[HostRuns, str | None]:
        first, leads = self.names[0], host.name == self.names[0]
        if leads:
            place: dict[str, Any] = {"run": None, "commit": None, "port": 0}
            place["address"] = _address(state, host)
        else:
            said = self.meeting.hear("place", [first], _PATIENCE_S)
            if not said.get(first):
                waits = f"{first}, which leads, did not start"
                return HostRuns(name=host.name, ok=False, lines=(waits,)), None
            place = said[first]
        part = json.dumps({**place, "hosts": self.names, "host": host.name})
        answer = ask(state, host, self.verb, self.words, part, inventory=self.inventory)
        told = _told(answer)
        started = {name: told.get(name) for name in ("run", "commit", "port")}
        good = None not in started.values()
        if leads:
            self.meeting.say("place", host.name, {**place, **started} if good else None)
        return (answer, str(told["run"])) if good else (replace(answer, ok=False), None)

    def _came_up(self, state: State, host: Host, run: str) -> str:
        """Return what a run does as soon as it does not only start any more."""
        found, waited = "starting", 0.0
        while found == "starting" and waited < _COMES_UP_S:
            listed = ask(state, host, "list", [], inventory=self.inventory)
            found = next((each.outcome for each in listed.runs if each.run == run), "not known")
            gevent.sleep(1.0 if found == "starting" else 0)
            waited += 1
        return found


def _address(state: State, host: Host) -> str:
    """Return the address at which the other hosts reach this one."""
    spec = declared(host)
    if spec.smoke.across is not None and spec.smoke.across.address:
        return spec.smoke.across.address

    def run() -> tuple[bool, Any]:
        given = {**as_declared_owner(spec), "_success_exit_codes": [0]}
        command = StringCommand("hostname -I")
        return bounded_command(state, host, command, given, seconds=_ADDRESSES_S)

    said = reached(host, run, seconds=_ADDRESSES_S)
    known = [] if isinstance(said, Unanswered) or not said[0] else said[1].stdout_lines
    found = [each for each in addresses(" ".join(known).split()) if ":" not in each]
    return found[0] if found else ""
