"""One host's part of a step across hosts: its ranks, run under the rendezvous that all share.

The launcher, the ranks and the checks are those of a host's own test. What takes the facts of all
ranks is judged by the controller, to whom this host's share is left in a file; it then has each
host note what it found (`conclude`).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import files, torch_location
from ..journal import Journal
from ..judge import across, ends, failure, verdict
from ..judge.check import Expected
from ..judge.decisions import Decisions
from ..judge.ends import End, Part
from ..judge.listens import ANYONE, GROUP
from ..judge.ranks import FINISHED
from ..options import Across, ConcludeOptions, Options
from . import network, rendezvous
from .group import DEADLINE, Group, Limit
from .interfaces import interface_of
from .progress import Announcer
from .rendezvous import Met, Missed
from .site import Site

_MEETING_S = 60.0
_LINES_SHOWN = 15
STOPPED = "the controller"


def part_file(output: Path) -> Path:
    """Return where a launcher leaves its part of the step whose verdict will be at `output`."""
    return output.with_name(f"{output.name}.part")


def end_file(output: Path) -> Path:
    """Return where the controller writes the id of a run that a launcher is to end."""
    return output.with_name(f"{output.name}.end")


class HostPart:
    """One launcher's work, from the first word to the part."""

    def __init__(
        self,
        options: Options,
        asked: Across,
        bundle: Path,
        announcer: Announcer,
        interruption: Callable[[], str | None],
        token: bytes,
    ) -> None:
        self._options = options
        self._asked = asked
        self._token = token
        self._announcer = announcer
        self._interruption = interruption
        self._began = time.monotonic()
        self._meeting_s = min(_MEETING_S, options.deadline / 3)
        self._ranks = options.ranks or 2
        directory = options.output.with_name(f"{options.output.name}.logs")
        self._site = Site(options, options.mode, self._ranks, bundle, directory)
        self._group: Group | None = None
        self._listens = network.of_group()

    def run(self) -> int:
        """Meet the other hosts, run the ranks, leave the part; return the exit code."""
        options, asked = self._options, self._asked
        hosts = ", ".join(asked.hosts)
        self._announcer.say(f"{options.host}: one step on {hosts}, {asked.world_size} ranks")
        if self._listens.to == ANYONE:
            self._announcer.say(f"others than these hosts can connect: {self._listens.how}")
        part_file(options.output).unlink(missing_ok=True)
        shutil.rmtree(self._site.directory, ignore_errors=True)
        self._site.directory.mkdir()
        end = self._meet_and_run()
        if end.kind in ends.WITH_OUTPUT and self._group is not None:
            end = replace(end, tail=ends.shortened(self._group.tail(end.rank)))
        part = Part(
            options.host,
            end,
            str(self._site.directory),
            self._journals(),
            self._logs(),
            self._listens,
        )
        files.write(part_file(options.output), part.as_json(asked.run_id))
        self._summarise(end)
        return verdict.exit_code("pass" if end.good else "fail", options.mode)

    def _meet_and_run(self) -> End:
        try:
            met = self._meet()
        except OSError as error:
            sentence = f"port {self._port} cannot be listened at on {self._options.host}"
            return End("port", self._options.host, f"{sentence}: {error.strerror or error}")
        if isinstance(met, Missed):
            return self._interrupted(self._stopped()) or self._alone(met)
        return self._run_ranks(met)

    @property
    def _first(self) -> str:
        return self._asked.hosts[0]

    @property
    def _port(self) -> int:
        return self._asked.endpoints[0][1]

    def _stopped(self) -> str | None:
        """Return who asks this launcher to end: a signal's name, or STOPPED; None if nobody."""
        if name := self._interruption():
            return name
        try:
            asked = end_file(self._options.output).read_text().strip()
        except OSError:
            return None
        return STOPPED if asked == self._asked.run_id else None

    def _meet(self) -> Met | Missed:
        until = self._began + self._meeting_s
        endpoints, hosts = self._asked.endpoints, self._asked.hosts
        place = hosts.index(self._options.host)
        if place == 0:
            others = range(1, len(hosts))
            return rendezvous.serve(endpoints, others, self._token, until, self._stopped)
        return rendezvous.reach(endpoints, place, self._token, until, self._stopped)

    def _alone(self, missed: Missed) -> End:
        me, first, port = self._options.host, self._first, self._port
        within = f"within {self._meeting_s:.0f} s"
        if me == first:
            absent = [self._asked.hosts[place] for place in missed.absent]
            return End("absent", absent[0], f"{_list(absent)} did not come to the meeting {within}")
        if missed.welcomed:
            return End("stopped", me, f"{me} met {first}, and others did not come {within}")
        only = ""
        if self._listens.to == GROUP:
            only = f", and for {me} if others see it under an address that no interface of it has"
        tried = "; ".join(f"{address}: {why}" for address, why in missed.tried.items())
        return End(
            "unreached",
            first,
            f"{me} could not reach {first} at port {port} {within} ({tried or 'no answer'}): let"
            f" TCP through between the hosts, or declare smoke_across_address for {first}{only}",
        )

    def _run_ranks(self, met: Met) -> End:
        options = self._options
        checks = [check for check in across.ON_RANKS if check.each]
        plan = self._site.across(across.ON_RANKS, self._rendezvous(met), interface_of(met.local))
        group = self._group = Group(replace(plan, checks=checks))
        expected = Expected(
            self._asked.world_size, options.allreduce_mib, torch_location.locate(), []
        )
        decisions = Decisions([*checks, FINISHED], expected, self._announcer.check)
        limit = Limit(self._began + options.deadline, options.deadline, "the deadline")
        group.run(decisions, lambda: limit, self._stopped)
        return self._end_of(group)

    def _rendezvous(self, met: Met) -> list[str]:
        address, port = met.endpoint
        endpoint = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        is_host = "true" if self._options.host == self._first else "false"
        seconds = round(self._meeting_s)
        return [
            *("--nnodes", str(len(self._asked.hosts)), "--rdzv-id", self._asked.run_id),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--local-addr", met.local),
            "--rdzv-conf",
            f"is_host={is_host},join_timeout={seconds},read_timeout={seconds}",
        ]

    def _end_of(self, group: Group) -> End:
        host, journals, wanted = self._options.host, group.journals, self._ranks
        if group.reason == DEADLINE and not group.hung:
            return End("stopped", host, f"the ranks on {host} were ended after a failed check")
        if group.reason == DEADLINE:
            return self._late(group)
        if end := self._interrupted(group.reason):
            return end
        if group.finished:
            return End("done", host)
        code = group.code or 0
        if len(journals) < wanted and not any(each.error for each in journals.values()):
            sentence = f"{len(journals)} of {wanted} ranks started, torchrun ended with code {code}"
            return End("peer", host, f"on {host}, {sentence}")
        log = group.plan.log.read_text(errors="replace")
        return ends.of_ranks(host, failure.ended(journals, 0, code, log), journals)

    def _late(self, group: Group) -> End:
        host, deadline = self._options.host, self._options.deadline
        if len(group.journals) < self._ranks:
            started = f"{len(group.journals)} of {self._ranks} ranks had started"
            return End("late", host, f"on {host}, {started} after {deadline} s (the deadline)")
        found = failure.at_deadline(group.journals, 0, deadline)
        return End("late", host, f"on {host}, {found.sentence}", found.rank)

    def _interrupted(self, who: str | None) -> End | None:
        host = self._options.host
        if who is None:
            return None
        if who == STOPPED:
            return End("stopped", host, f"the ranks on {host} were ended with the other hosts'")
        return End("interrupted", host, f"the test on {host} was interrupted by {who}")

    def _journals(self) -> dict[int, Journal]:
        """The ranks' journals, their times counted from the beginning of this launcher."""
        journals = self._group.journals if self._group else {}
        return {
            rank: replace(journal, started=(journal.started or self._began) - self._began)
            for rank, journal in journals.items()
        }

    def _logs(self) -> dict[int, str]:
        group = self._group
        found = {rank: group.log_of(rank) for rank in group.journals} if group else {}
        return {rank: str(log) for rank, log in found.items() if log}

    def _summarise(self, end: End) -> None:
        if end.good:
            seconds = time.monotonic() - self._began
            self._announcer.say(f"the ranks of {self._options.host} are done, in {seconds:.1f} s")
            return
        for line in end.tail[-_LINES_SHOWN:]:
            self._announcer.quote(line)
        self._announcer.say(end.sentence)


def conclude(options: ConcludeOptions, judged: Mapping[str, Any]) -> int:
    """Keep the verdict that the controller has reached."""
    files.write(options.output, judged)
    for passing in (part_file(options.output), end_file(options.output)):
        passing.unlink(missing_ok=True)
    return 0


def _list(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
