"""One host's part of a step across hosts: its ranks, run under the rendezvous that all share.

The launcher, the ranks and the checks are those of a host's own test. What takes the facts of all
ranks is judged by the controller, to whom this host's share is left in a file; it then has each
host note what it found (`conclude`).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from . import across, files, listening, verdict
from .across import End, Part
from .check import Board, Want
from .group import ENDED, STOPPED, Group, Plan
from .journal import STARTING
from .options import Across, Options
from .ranks import plan_of_ranks
from .verdict import Announcer

_MEETING_S = 60
"""Seconds, in which torchrun is to find the other hosts."""
_MEETING_SHARE = 0.6
"""Of the deadline, in which it must have found them."""


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
        group = Group(self._plan())
        end = self._train(group)
        journals = group.journals
        logs = {rank: log for rank in journals if (log := group.log_of(rank))}
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

    def _train(self, group: Group) -> End:
        options, asked, host = self._options, self._asked, self._host
        want = Want(asked.world_size, options.allreduce_mib, options.mode)
        board = Board([*group.plan.checks, ENDED], want, self._say.check)
        deadline = f"{options.deadline} s (the deadline)"

        def limit() -> tuple[float, str]:
            """Torchrun tries for long to find the others, which must leave time for the step."""
            share = 1.0 if group.journals else _MEETING_SHARE
            return self._began + share * options.deadline, deadline

        group.run(board, limit, self._stopped)
        ending = group.ending(deadline)
        met = group.journals or group.agent.step != STARTING
        if ending.kind in ("raised", "late") and not met:
            return self._unmet((group.agent.error or "no answer").splitlines()[0])
        tail = () if ending.kind in ("done", "stopped", "interrupted") else group.tail(ending.rank)
        end = across.of_ranks(host, ending, group.journals or {-1: group.agent})
        return replace(end, tail=across.shortened(tail))

    def _unmet(self, error: str) -> End:
        """Return the end of a host whose torchrun did not find the others'."""
        asked, host, first = self._asked, self._host, self._asked.hosts[0]
        if host == first and "listen" in error:
            return End("port", host, f"port {asked.port} cannot be listened at on {host}: {error}")
        if host == first:
            absent = " and ".join(asked.hosts[1:])
            return End("absent", asked.hosts[1], f"not all of {absent} came in time")
        whom = first
        if self._listens.to == listening.GROUP:
            whom += f", and for {host} if others see it under an address of no interface"
        return End(
            "unreached",
            first,
            f"{host} could not reach {first} at {asked.address} port {asked.port} ({error}):"
            f" let TCP through between the hosts, or declare smoke_across_address for {whom}",
        )

    def _plan(self) -> Plan:
        options, asked = self._options, self._asked
        is_host = self._host == asked.hosts[0]
        local = asked.address if is_host else listening.seen_by(asked.address)
        interface = listening.interface_of(local)
        shown = f"[{asked.address}]" if ":" in asked.address else asked.address
        seconds = min(_MEETING_S, options.deadline // 3)
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
