"""One host's part of a run: meet the other launchers, run the ranks, tell and hear how it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .. import environment, processes
from ..journal import Journal
from ..judge import failure
from ..options import GPU
from ..ranks import across_rank
from . import across_end
from .across_assembly import SILENCE_S, Assembly, Message
from .across_end import End
from .across_link import interface_of
from .across_plan import Plan
from .supervise import Tree

_POLL = 0.05
_MEETING_S = 60.0
_AFTER_FAILURE = 5.0
"""Seconds the ranks go on after the first bad news: what follows often narrows the cause."""
_LAST_WORDS_S = 10.0
_STACK_WAIT = 0.3


class Run:
    """The ranks of this host and what is known of the others' below `directory`."""

    def __init__(
        self, plan: Plan, bundle: Path, directory: Path, interruption: Callable[[], str | None]
    ) -> None:
        self._plan = plan
        self._bundle = bundle
        self._interruption = interruption
        self._began = time.monotonic()
        self.directory = directory
        self.journals: dict[int, Journal] = {}
        self.host_of: dict[int, str] = {}
        self.ends: dict[str, End] = {}
        self._steps: dict[str, str] = {}
        self._offsets: dict[Path, int] = {}
        self._go = False

    def run(self, news: Callable[[], bool]) -> bool:
        """Take part from the meeting to the last word; return whether all hosts met.

        + news: called whenever something new is known; returns whether a check has failed

        Raises OSError where the first host's port is in use.
        """
        plan = self._plan
        addresses = {name: host.addresses for name, host in plan.hosts.items()}
        assembly = Assembly(plan.host, addresses, plan.run_id, plan.port + 1)
        try:
            met = self._meet(assembly)
            if met:
                self._work(assembly, news)
                self._listen_to_the_end(assembly)
            assembly.flush(2.0)
        finally:
            assembly.close()
        return met

    # -- the meeting

    def _meet(self, assembly: Assembly) -> bool:
        limit = self._began + min(_MEETING_S, self._plan.deadline / 3)
        while not self._go:
            self._hear(assembly.poll(_POLL, "meeting"))
            if assembly.me == assembly.first and not assembly.missing:
                assembly.say("go")
                self._go = True
            elif self._stopped(assembly):
                return False
            elif time.monotonic() > limit:
                self._note(assembly, self._nobody(assembly, limit - self._began))
                return False
        return True

    def _stopped(self, assembly: Assembly) -> bool:
        if name := self._interruption():
            self._note(assembly, self._interrupted(name))
        elif assembly.first in assembly.closed_on and assembly.first not in self.ends:
            self._note(assembly, self._gone(assembly.first))
        return bool(self.ends)

    def _nobody(self, assembly: Assembly, seconds: float) -> End:
        """Say who did not come, and what was tried to reach the first host."""
        missing = assembly.missing
        if assembly.me == assembly.first or assembly.first not in missing:
            names = _list(missing)
            return End("lost", (missing or [assembly.first])[0],
                       f"{names or assembly.first} did not come to the meeting within"
                       f" {seconds:.0f} s")  # fmt: skip
        first, port = self._plan.first, self._plan.port
        tried = "; ".join(f"{address}: {why}" for address, why in assembly.refusals.items())
        return End(
            "lost",
            first,
            f"{assembly.me} could not reach {first} at port {port + 1} within {seconds:.0f} s"
            f" ({tried or 'no answer'}): let TCP through between the hosts, or declare"
            f" smoke_across_address for {first}",
        )

    # -- the ranks

    def _work(self, assembly: Assembly, news: Callable[[], bool]) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()
        log = self.directory / "torchrun.log"
        tree = Tree(self._command(assembly), self._environment(assembly), self.directory, log)
        try:
            end = self._follow(assembly, tree, news)
        finally:
            tree.end()
        self._forward(assembly)
        code = tree.code
        if end is None and code is not None:
            end = self._ended(code, log.read_text(errors="replace"))
        self._note(assembly, end or End("stopped", assembly.me, "was ended with the other hosts'"))
        news()

    def _follow(self, assembly: Assembly, tree: Tree, news: Callable[[], bool]) -> End | None:
        """Follow until torchrun ends or somebody else has ended badly (None), or to a bad end."""
        limit = self._began + self._plan.deadline
        bad = False
        while tree.code is None:
            heard = self._hear(assembly.poll(_POLL, self._slowest_step()))
            if self._forward(assembly) or heard:
                bad = news() or bad
            self._note_gone()
            now = time.monotonic()
            if end := self._bad_news(assembly, now):
                return end
            if now > limit:
                if bad or any(not end.good for end in self.ends.values()):
                    return None
                return self._late()
            if bad or any(not end.good for end in self.ends.values()):
                limit = min(limit, now + _AFTER_FAILURE)
        self._note_gone()
        return None

    def _bad_news(self, assembly: Assembly, now: float) -> End | None:
        if name := self._interruption():
            return self._interrupted(name)
        for host in assembly.closed_on:
            if host not in self.ends:
                self.ends[host] = self._gone(host)
        silent = [host for host in assembly.silent(now) if host not in self.ends]
        if silent:
            return self._silent(silent)
        return None

    def _listen_to_the_end(self, assembly: Assembly) -> None:
        """Wait for the other hosts' last words: only together they tell who was the first."""
        others = [host for host in self._plan.hosts if host != self._plan.host]
        alone = self.ends[assembly.me]
        limit = time.monotonic() + (_LAST_WORDS_S if not alone.good else self._time_left())
        while any(host not in self.ends for host in others):
            self._hear(assembly.poll(_POLL, "waiting for the other hosts"))
            now = time.monotonic()
            end = self._bad_news(assembly, now)
            if end is not None:
                self._note(assembly, end)
                return
            if any(not end.good for end in self.ends.values()):
                limit = min(limit, now + _LAST_WORDS_S)
            if now > limit:
                missing = [host for host in others if host not in self.ends]
                if alone.good:
                    self._note(assembly, End("late", missing[0],
                               f"{_list(missing)} did not finish in time"))  # fmt: skip
                return

    def _time_left(self) -> float:
        return max(_LAST_WORDS_S, self._began + self._plan.deadline - time.monotonic())

    def _command(self, assembly: Assembly) -> list[str]:
        plan = self._plan
        mine = assembly.local_address() or "127.0.0.1"
        meeting = mine if plan.host == plan.first else str(assembly.address_of_first)
        host = f"[{meeting}]" if ":" in meeting else meeting
        is_host = "true" if plan.host == plan.first else "false"
        settings = f"is_host={is_host},join_timeout={plan.deadline},read_timeout={plan.deadline}"
        torchrun = [
            *(sys.executable, "-m", "torch.distributed.run"),
            *("--nnodes", str(len(plan.hosts)), "--max-restarts", "0"),
            *("--nproc-per-node", str(plan.hosts[plan.host].ranks)),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{host}:{plan.port}"),
            *("--rdzv-id", plan.run_id, "--rdzv-conf", settings, "--local-addr", mine),
            *("--log-dir", str(self.directory / "logs"), "--redirects", "3"),
        ]
        worker = [
            *(str(self._bundle), across_rank.FLAG, str(self.directory), "--host", plan.host),
            *("--launcher-pid", str(os.getpid()), "--deadline", str(plan.deadline)),
            *("--allreduce-mib", str(plan.allreduce_mib)),
            *("--device", "cuda" if plan.mode == GPU else "cpu"),
        ]
        return torchrun + worker

    def _environment(self, assembly: Assembly) -> dict[str, str]:
        """The ranks' environment: for one host's, but by the interface that leads to the others."""
        ours = environment.clean(os.environ, self._plan.mode)
        interface = interface_of(assembly.local_address() or "")
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            ours.pop(name, None)
            if interface is not None:
                ours[name] = interface
        return ours

    # -- what is known

    def _forward(self, assembly: Assembly) -> bool:
        """Read what this host's ranks have written, pass it on; return whether there was any."""
        news = False
        for path in sorted(self.directory.glob("rank*.jsonl")):
            rank = int(path.stem.removeprefix("rank"))
            lines = list(self._new_lines(path))
            if lines:
                news = True
                self._take(self._plan.host, rank, lines)
                assembly.say("lines", rank=rank, lines=lines)
        return news

    def _new_lines(self, path: Path) -> Iterator[dict[str, Any]]:
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._offsets[path] = self._offsets.get(path, 0) + len(whole)
        for line in whole.splitlines():
            yield json.loads(line)

    def _take(self, host: str, rank: int, lines: list[dict[str, Any]]) -> None:
        journal = self.journals.setdefault(rank, Journal(rank))
        if self.host_of.setdefault(rank, host) != host:
            return  # two hosts claim the rank: the ranks per host will not be right
        for line in lines:
            journal.take(line)

    def _hear(self, messages: list[Message]) -> bool:
        for message in messages:
            host, kind = str(message["host"]), message.get("kind")
            if kind == "go":
                self._go = True
            elif kind == "lines":
                self._take(host, int(message["rank"]), message["lines"])
            elif kind == "end":
                self.ends[host] = across_end.read(message)
            self._steps[host] = str(message.get("step", self._steps.get(host, "meeting")))
        return any(message.get("kind") in ("lines", "end") for message in messages)

    def _own(self) -> dict[int, Journal]:
        mine = self._plan.host
        return {r: journal for r, journal in self.journals.items() if self.host_of[r] == mine}

    def _slowest_step(self) -> str:
        own = self._own().values()
        return min(own, key=lambda journal: len(journal.steps)).step if own else "start"

    def _note_gone(self) -> None:
        for journal in self._own().values():
            if journal.gone is None and journal.pid and not processes.alive(journal.pid):
                journal.gone = time.monotonic()

    # -- ends

    def _note(self, assembly: Assembly, end: End) -> None:
        """Keep this host's end and tell the others."""
        if end.kind in across_end.WITH_OUTPUT and end.host == assembly.me:
            lines = self.tail(end.rank)
            end = End(end.kind, end.host, end.sentence, end.rank, across_end.shortened(lines))
        self.ends[assembly.me] = end
        assembly.say("end", **end.as_message())

    def _interrupted(self, name: str) -> End:
        host = self._plan.host
        return End("interrupted", host, f"the test on {host} was interrupted by {name}")

    def _gone(self, host: str) -> End:
        sentence = f"the test on {host} ended without a word: it was killed, or {host} went down"
        return End("lost", host, f"{sentence}{self._last_seen(host)}")

    def _silent(self, hosts: list[str]) -> End:
        sentence = (
            f"{_list(hosts)} did not answer {self._plan.host} for {SILENCE_S:.0f} s"
            f"{self._last_seen(hosts[0])}: a machine, or the network between them, is down"
        )
        return End("lost", hosts[0], sentence)

    def _last_seen(self, host: str) -> str:
        step = self._steps.get(host)
        return f" (last seen at '{step}')" if step else ""

    def _late(self) -> End:
        for journal in self._own().values():
            if journal.pid and journal.gone is None:
                os.kill(journal.pid, signal.SIGUSR1)
        time.sleep(_STACK_WAIT)
        found = failure.at_deadline(self.journals, self._plan.ranks, self._plan.deadline)
        host = self.host_of.get(found.rank) if found.rank is not None else None
        where = f"on {host}, " if host else ""
        return End("late", host or self._plan.host, f"{where}{found.sentence}", found.rank)

    def _ended(self, code: int, log: str) -> End:
        own, host = self._own(), self._plan.host
        wanted = self._plan.hosts[host].ranks
        if code == 0 and len(own) == wanted and all(each.finished for each in own.values()):
            return End("done", host)
        if len(own) < wanted and not any(each.error for each in own.values()):
            sentence = f"{len(own)} of {wanted} ranks started, torchrun ended with code {code}"
            return End("peer" if self.journals.keys() - own.keys() else "killed", host, sentence)
        return across_end.of_ranks(host, failure.ended(own, 0, code, log), own)

    def log_of(self, rank: int) -> Path | None:
        """Return the file with what a rank of this host printed, None if nothing."""
        if self.host_of.get(rank) != self._plan.host:
            return None
        local = sorted(self._own()).index(rank)
        for name in ("stderr.log", "stdout.log"):
            for path in sorted(self.directory.glob(f"logs/*/attempt_0/{local}/{name}")):
                if path.stat().st_size:
                    return path
        return None

    def tail(self, rank: int | None) -> list[str]:
        """Return the last lines of a rank's log, or else of torchrun's."""
        path = self.log_of(rank) if rank is not None else None
        path = path or self.directory / "torchrun.log"
        return path.read_text(errors="replace").splitlines() if path.exists() else []


def _list(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
