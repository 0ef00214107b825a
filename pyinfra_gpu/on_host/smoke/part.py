"""One host's part of a step across hosts: its ranks, run under the rendezvous that all share.

The launcher, the ranks and the checks are those of a host's own test. What takes the facts of all
ranks is judged by the controller, to whom this host's share is left in a file; it then has each
host note what it found (`conclude`).
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from . import across, files, listening, verdict
from .across import End, Part
from .check import Board, Want
from .group import ENDED, STOPPED, Group, Plan, asked_to_end
from .options import Across, Options
from .ranks import plan_of_ranks
from .verdict import Announcer

_MEETING_S = 60.0
_POLL_S = 0.1


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
        self._host, self._began = options.host, time.monotonic()
        self._meeting_s = min(_MEETING_S, options.deadline / 3)
        self._group: Group | None = None
        self._listens = listening.to_whom(listening.GROUP)

    def run(self) -> int:
        """Meet the other hosts, run the ranks, leave the part; return the exit code."""
        options, asked, host = self._options, self._asked, self._host
        self._say.say(f"{host}: one step on {', '.join(asked.hosts)}, {asked.world_size} ranks")
        if self._listens.to == listening.ANYONE:
            self._say.say(f"others than these hosts can connect: {self._listens.how}")
        part_file(options.output).unlink(missing_ok=True)
        shutil.rmtree(options.logs, ignore_errors=True)
        options.logs.mkdir()
        end, group = self._meet(), self._group
        journals = group.journals if group else {}
        logs = {rank: log for rank in journals if group and (log := group.log_of(rank))}
        part = Part(host, end, str(options.logs), journals, logs, self._listens, asked.run_id)
        files.write(part_file(options.output), asdict(part))
        self._say.quote(end.tail)
        seconds = time.monotonic() - self._began
        done = f"the ranks of {host} are done, in {seconds:.1f} s"
        self._say.say(done if end.good else end.sentence)
        return verdict.exit_code("pass" if end.good else "fail", options.mode)

    def _stopped(self) -> str | None:
        """Return who asks this launcher to end: a signal's name, or STOPPED; None if nobody."""
        try:
            asked = end_file(self._options.output).read_text().strip()
        except OSError:
            asked = ""
        return self._interruption() or (STOPPED if asked == self._asked.run_id else None)

    def _goes_on(self) -> bool:
        return time.monotonic() < self._began + self._meeting_s and not self._stopped()

    # -- where the hosts meet before torchrun does, since a host may have several addresses

    def _meet(self) -> End:
        """Find the other hosts, then train; or say why that cannot be."""
        host, first, port = self._host, self._asked.hosts[0], self._asked.port
        within, tried = f"within {self._meeting_s:.0f} s", dict[str, str]()
        try:
            address, local = self._welcome() if host == first else self._reach(tried)
        except OSError as error:
            why = error.strerror or str(error)
            return End("port", host, f"port {port} cannot be listened at on {host}: {why}")
        if local:
            return self._train(address, local)
        if who := self._stopped():
            return across.of_ranks(host, asked_to_end(who), {})
        if host == first:
            absent = " and ".join(self._asked.hosts[1:])
            return End("absent", self._asked.hosts[1], f"not all of {absent} came {within}")
        shown = "; ".join(f"{address}: {why}" for address, why in tried.items())
        whom = first
        if self._listens.to == listening.GROUP:
            whom += (
                f", and for {host} if others see it under an address that no interface of it has"
            )
        return End(
            "unreached",
            first,
            f"{host} could not reach {first} at port {port} {within} ({shown or 'no answer'}):"
            f" let TCP through between the hosts, or declare smoke_across_address for {whom}",
        )

    def _welcome(self) -> tuple[str, str]:
        """Listen where torchrun's store will be until all others have connected; return the address
        by which they see this host, twice, "" where they do not come. What they send is not read.

        Raises OSError where the port is in use.
        """
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        there: dict[str, socket.socket] = {}
        others = len(self._asked.hosts) - 1
        with socket.create_server(
            ("", self._asked.port), family=family, dualstack_ipv6=dual
        ) as server:
            server.settimeout(_POLL_S)
            while len(there) < others and self._goes_on():
                try:
                    connection, peer = server.accept()
                except TimeoutError:
                    continue
                there[peer[0]] = connection
        if len(there) < others:
            return "", ""
        local = [str(each.getsockname()[0]).removeprefix("::ffff:") for each in there.values()]
        for each in there.values():
            each.close()
        return local[0], local[0]

    def _reach(self, tried: dict[str, str]) -> tuple[str, str]:
        """Connect to the first host at one of its addresses, and wait until it has met all; return
        that address, and the one by which it sees this host, "" where that fails.

        + tried: gets address -> what went wrong there
        """
        while self._goes_on():
            for address in self._asked.addresses:
                try:
                    with socket.create_connection((address, self._asked.port), 3.0) as connection:
                        connection.settimeout(_POLL_S)
                        while self._goes_on():
                            try:
                                connection.recv(1)
                            except TimeoutError:
                                continue
                            return address, str(connection.getsockname()[0])
                        tried[address] = "it answered, and waited for other hosts"
                except OSError as error:
                    tried[address] = error.strerror or str(error)
            time.sleep(_POLL_S)
        return "", ""

    # -- the ranks

    def _train(self, address: str, local: str) -> End:
        options, asked = self._options, self._asked
        group = self._group = Group(self._plan(address, local))
        want = Want(asked.world_size, options.allreduce_mib, options.mode)
        board = Board([*group.plan.checks, ENDED], want, self._say.check)
        limit = (self._began + options.deadline, f"{options.deadline} s (the deadline)")
        group.run(board, lambda: limit, self._stopped)
        ending = group.ending(limit[1])
        journals = group.journals or {-1: group.agent}
        tail = () if ending.kind in ("done", "stopped", "interrupted") else group.tail(ending.rank)
        return replace(across.of_ranks(self._host, ending, journals), tail=across.shortened(tail))

    def _plan(self, address: str, local: str) -> Plan:
        options, asked = self._options, self._asked
        interface = listening.interface_of(local)
        shown = f"[{address}]" if ":" in address else address
        is_host = str(self._host == asked.hosts[0]).lower()
        seconds = round(self._meeting_s)
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
                *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{shown}:{asked.port}"),
                *("--local-addr", local, "--rdzv-conf"),
                f"is_host={is_host},join_timeout={seconds},read_timeout={seconds}",
            ),
        )
        return replace(plan, checks=[check for check in across.ON_RANKS if check.each])
