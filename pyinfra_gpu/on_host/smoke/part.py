"""One host's part of a step across hosts: its ranks, run under the rendezvous that all share.

The launcher, the ranks and the checks are those of a host's own test. What takes the facts of all
ranks is judged by the controller, to whom this host's share is left in a file; it then has each
host note what it found (`conclude`).
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from . import across, files, listening, verdict
from .across import End, Part
from .check import Board, Want
from .group import DEADLINE, ENDED, Group
from .journal import Journal
from .options import Across, Options
from .ranks import plan_of_ranks
from .verdict import Announcer

_MEETING_S = 60.0
_POLL_S = 0.1
STOPPED = "the controller"


def part_file(output: Path) -> Path:
    """Return where a launcher leaves its part of the step whose verdict will be at `output`."""
    return output.with_name(f"{output.name}.part")


def end_file(output: Path) -> Path:
    """Return where the controller writes the id of a run that a launcher is to end."""
    return output.with_name(f"{output.name}.end")


def conclude(output: Path, judged: Mapping[str, Any]) -> int:
    """Keep the verdict that the controller has reached."""
    files.write(output, judged)
    for passing in (part_file(output), end_file(output)):
        passing.unlink(missing_ok=True)
    return 0


class HostPart:
    """One launcher's work, from the first word to the part."""

    def __init__(
        self,
        options: Options,
        asked: Across,
        bundle: Path,
        announcer: Announcer,
        interruption: Callable[[], str | None],
    ) -> None:
        self._options, self._asked, self._bundle = options, asked, bundle
        self._say, self._interruption = announcer, interruption
        self._began = time.monotonic()
        self._meeting_s = min(_MEETING_S, options.deadline / 3)
        self._group: Group | None = None
        self._listens = listening.to_whom(listening.GROUP)

    def run(self) -> int:
        """Meet the other hosts, run the ranks, leave the part; return the exit code."""
        options, asked, host = self._options, self._asked, self._options.host
        self._say.say(f"{host}: one step on {', '.join(asked.hosts)}, {asked.world_size} ranks")
        if self._listens.to == listening.ANYONE:
            self._say.say(f"others than these hosts can connect: {self._listens.how}")
        part_file(options.output).unlink(missing_ok=True)
        shutil.rmtree(options.logs, ignore_errors=True)
        options.logs.mkdir()
        end = self._run()
        group = self._group
        if group is not None and end.kind in ("killed", "raised", "late", "peer"):
            end = replace(end, tail=across.shortened(group.tail(end.rank)))
        journals = {
            rank: replace(journal, started=(journal.started or self._began) - self._began)
            for rank, journal in (group.journals if group else {}).items()
        }
        found = {rank: group.logs_of(rank) for rank in journals} if group else {}
        logs = {rank: str(files[0]) for rank, files in found.items() if files}
        part = Part(host, end, str(options.logs), journals, logs, self._listens, asked.run_id)
        files.write(part_file(options.output), asdict(part))
        if end.good:
            seconds = time.monotonic() - self._began
            self._say.say(f"the ranks of {host} are done, in {seconds:.1f} s")
        else:
            for line in end.tail[-15:]:
                self._say.quote(line)
            self._say.say(end.sentence)
        return verdict.exit_code("pass" if end.good else "fail", options.mode)

    def _run(self) -> End:
        host, first = self._options.host, self._asked.hosts[0]
        until = self._began + self._meeting_s
        within = f"within {self._meeting_s:.0f} s"
        tried: dict[str, str] = {}
        if host == first:
            port = self._asked.endpoints[0][1]
            try:
                local = welcome(port, len(self._asked.hosts) - 1, until, self._stopped)
            except OSError as error:
                sentence = f"port {port} cannot be listened at on {host}"
                return End("port", host, f"{sentence}: {error.strerror or error}")
            endpoint = (local or "", port)
        else:
            endpoint, local = reach(self._asked.endpoints, until, self._stopped, tried)
        if end := self._interrupted(self._stopped()):
            return end
        if local is not None:
            return self._train(endpoint, local)
        if host == first:
            absent = " and ".join(self._asked.hosts[1:])
            return End("absent", self._asked.hosts[1], f"not all of {absent} came {within}")
        shown = "; ".join(f"{address}: {why}" for address, why in tried.items())
        only = ""
        if self._listens.to == listening.GROUP:
            only = f", and for {host} if others see it under an address that no interface of it has"
        return End(
            "unreached",
            first,
            f"{host} could not reach {first} at port {self._asked.endpoints[0][1]} {within}"
            f" ({shown or 'no answer'}): let TCP through between the hosts, or declare"
            f" smoke_across_address for {first}{only}",
        )

    def _stopped(self) -> str | None:
        """Return who asks this launcher to end: a signal's name, or STOPPED; None if nobody."""
        if name := self._interruption():
            return name
        try:
            asked = end_file(self._options.output).read_text().strip()
        except OSError:
            return None
        return STOPPED if asked == self._asked.run_id else None

    def _train(self, endpoint: tuple[str, int], local: str) -> End:
        options, asked = self._options, self._asked
        checks = [check for check in across.ON_RANKS if check.each]
        address = f"[{endpoint[0]}]" if ":" in endpoint[0] else endpoint[0]
        is_host = "true" if options.host == asked.hosts[0] else "false"
        seconds = round(self._meeting_s)
        interface = listening.interface_of(local)
        plan = plan_of_ranks(
            options,
            options.mode,
            options.ranks or 2,
            self._bundle,
            options.logs,
            across.ON_RANKS,
            {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface},
            (
                *("--nnodes", str(len(asked.hosts)), "--rdzv-id", asked.run_id),
                *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{address}:{endpoint[1]}"),
                *("--local-addr", local, "--rdzv-conf"),
                f"is_host={is_host},join_timeout={seconds},read_timeout={seconds}",
            ),
        )
        group = self._group = Group(replace(plan, checks=checks))
        want = Want(asked.world_size, options.allreduce_mib, options.mode)
        board = Board([*checks, ENDED], want, self._say.check)
        limit = (self._began + options.deadline, f"{options.deadline} s (the deadline)")
        group.run(board, lambda: limit, self._stopped)
        return self._end_of(group, limit[1])

    def _end_of(self, group: Group, limit: str) -> End:
        host, journals, wanted = self._options.host, group.journals, group.plan.count
        if group.reason == DEADLINE and not group.hung:
            return End("stopped", host, f"the ranks on {host} were ended after a failed check")
        if group.reason == DEADLINE and len(journals) < wanted:
            started = f"{len(journals)} of {wanted} ranks had started"
            return End("late", host, f"on {host}, {started} after {limit}")
        if group.reason != DEADLINE and (end := self._interrupted(group.reason)):
            return end
        if group.finished:
            return End("done", host)
        if group.reason is None and group.agent.pid and not group.agent.finished:
            return End("raised", host, f"on {host}, {group.failure(limit)[0]}")
        if group.reason is None and len(journals) < wanted and not _errors(journals):
            started = f"{len(journals)} of {wanted} ranks started"
            return End("peer", host, f"on {host}, {started}, torchrun ended with code {group.code}")
        # Ranks are numbered over all hosts here, so none of this host's is missing by its number.
        sentence, rank = replace(group, plan=replace(group.plan, count=0)).failure(limit)
        if group.reason == DEADLINE:
            return End("late", host, f"on {host}, {sentence}", rank)
        return across.of_ranks(host, sentence, rank, journals)

    def _interrupted(self, who: str | None) -> End | None:
        host = self._options.host
        if who is None:
            return None
        if who == STOPPED:
            return End("stopped", host, f"the ranks on {host} were ended with the other hosts'")
        return End("interrupted", host, f"the test on {host} was interrupted by {who}")


def _errors(journals: Mapping[int, Journal]) -> bool:
    return any(journal.error for journal in journals.values())


# -- where the hosts meet before torchrun does, since a host may have several addresses


def welcome(port: int, others: int, until: float, stopped: Callable[[], str | None]) -> str | None:
    """Listen where torchrun's store will be until all others have connected; return the address by
    which they see this host, None where they do not come. What they send is not read.

    Raises OSError where the port is in use.
    """
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    there: dict[str, socket.socket] = {}
    with socket.create_server(("", port), family=family, dualstack_ipv6=dual) as server:
        server.settimeout(_POLL_S)
        while len(there) < others and time.monotonic() < until and not stopped():
            try:
                connection, peer = server.accept()
            except TimeoutError:
                continue
            there[peer[0]] = connection
    if len(there) < others:
        return None
    local = [str(each.getsockname()[0]).removeprefix("::ffff:") for each in there.values()]
    for each in there.values():
        each.close()
    return local[0]


def reach(
    endpoints: Sequence[tuple[str, int]],
    until: float,
    stopped: Callable[[], str | None],
    tried: dict[str, str],
) -> tuple[tuple[str, int], str | None]:
    """Connect to the first host at one of the endpoints, and wait until it has met all; return
    that endpoint, and the address by which it sees this host, None where that fails.

    + tried: gets address -> what went wrong there
    """
    while time.monotonic() < until and not stopped():
        for endpoint in endpoints:
            try:
                with socket.create_connection(endpoint, timeout=3.0) as connection:
                    local = str(connection.getsockname()[0])
                    connection.settimeout(_POLL_S)
                    while time.monotonic() < until and not stopped():
                        try:
                            connection.recv(1)
                        except TimeoutError:
                            continue
                        return endpoint, local
                    tried[endpoint[0]] = "it answered, and waited for other hosts"
            except OSError as error:
                tried[endpoint[0]] = error.strerror or str(error)
        time.sleep(_POLL_S)
    return endpoints[0], None
