"""A run of ranks under torchrun, as training is started: followed, ended, explained.

torchrun puts each rank in a session of its own, so no process group holds them all. All that a run
starts carries its mark in the environment instead, by which it is found; and what the launcher
starts is killed by the kernel when the launcher ends, as the ranks are with torchrun.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import environment, exchange, hang
from .journal import HOST, Journal, Writer, file_of
from .options import REHEARSAL_CPU, Across, Options

_POLL, _EXIT_WAIT = 0.05, 1.0
_TOLD_S = 1.5
"""How long other hosts have to hear why this one ends the run, before it ends its ranks."""
_MARK = "PYINFRA_GPU_SMOKE_TEST"
"""The variable that all processes of a test carry; its value names launcher and folder."""
_TERM_GRACE, _KILL_LIMIT = 2.0, 5.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)  # loaded here: as little as possible is done after a fork
_TAIL_LINES = 30
_PEER_LOST = re.compile(
    r"connection (?:was )?(?:likely )?(?:closed|reset|refused)|broken pipe|timed? ?out|socket|"
    r"remote (?:process|rank|peer)|unhandled system error",
    re.IGNORECASE,
)
"""What a rank raises that lost another one: seldom the cause, if any other rank failed."""

_NOT_MET = re.compile(r"(?:Rendezvous|Dist)\w*Error")
"""What torchrun raises that does not find the other hosts'."""


@dataclass(frozen=True)
class Ending:
    """How a run of ranks ended, in one sentence; empty where all did all their work.

    + rank: the rank to look at; known: whether anything failed, for an interruption is no failure
    + hung: whether it was ended because it did not go on
    """

    sentence: str = ""
    rank: int | None = None
    known: bool = True
    hung: bool = False


@dataclass
class Ranks:
    """The ranks of one run, and torchrun, which starts those on this host.

    + count: of all ranks, on however many hosts
    + own: the host's journal; journals: rank -> its journal; others: of the hosts' that take part
    + here: this host; asked: with which others one step is taken
    + left: processes that were still there when torchrun had ended
    + ended: why it was ended; None: by itself
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    directory: Path
    count: int
    here: str = ""
    asked: Across | None = None
    own: Journal = field(default_factory=lambda: Journal(HOST))
    journals: dict[int, Journal] = field(default_factory=dict)
    others: dict[str, Journal] = field(default_factory=dict)
    code: int | None = None
    left: list[int] = field(default_factory=list)
    ended: Ending | None = None

    def run(self, to_end: Callable[[bool], Ending | None]) -> None:
        """Run to the end, or end it; when this returns nothing of it runs any more here.

        + to_end: asked again and again: why to end it now, None while there is no reason; it is
          told whether anything new was written down
        """
        torchrun = _start(self.command, self.environment, self.directory, self._log)
        try:
            while torchrun.poll() is None and self.ended is None:
                self.ended = to_end(self._follow()) or self._ended_elsewhere()
                time.sleep(_POLL)
            if self.ended is None:
                self.code = torchrun.wait()
                limit = time.monotonic() + _EXIT_WAIT
                while (left := _running(self.directory)) and time.monotonic() < limit:
                    time.sleep(_POLL)
                self.left = left
            if self.ended and self.asked:
                Writer(self.directory, HOST).fact("ended_by", asdict(self.ended))
                time.sleep(_TOLD_S)
            if self.ended and self.ended.hung:
                there = _running(self.directory)
                pids = [each.pid for each in self.journals.values() if each.pid in there]
                hang.ask_for_stacks(pids, self.directory)
        finally:
            _end(self.directory)
            torchrun.wait()
        self._follow()

    def _follow(self) -> bool:
        """Read what was written down; return whether there was anything new."""
        news = False
        folders = {self.here: self.directory}
        for number, host in enumerate(self.asked.hosts if self.asked else ()):
            folders.setdefault(host, exchange.folder_of(self.directory, number))
        for host, folder in folders.items():
            elsewhere = "" if host == self.here else host
            for path in sorted(folder.glob("*.jsonl")):
                if path == file_of(folder, HOST):
                    journal = self.others.setdefault(host, Journal(HOST)) if elsewhere else self.own
                else:
                    rank = int(path.stem.removeprefix("rank"))
                    journal = self.journals.setdefault(rank, Journal(rank, elsewhere))
                news = journal.follow(path) or news
        return news

    def _ended_elsewhere(self) -> Ending | None:
        """Return why another host has ended the run, or that one is silent; None if neither."""
        for number, host in enumerate(self.asked.hosts if self.asked else ()):
            journal = self.others.get(host)
            if journal and "ended_by" in journal.facts:
                return Ending(**journal.facts["ended_by"])
            silent = exchange.silent_s(self.directory, number) if journal else 0.0
            if silent > exchange.SILENT_S and journal and not journal.finished:
                what = f"nothing was heard of it for {silent:.0f} s"
                return Ending(f"{host} was lost in the middle of the step: {what}")
        return None

    @property
    def finished(self) -> bool:
        """Return whether all did all their work and torchrun had nothing to complain of."""
        done = [journal.finished for journal in self.journals.values()]
        return self.code == 0 and len(done) == self.count and all(done)

    # -- how it ended

    def ending(self) -> Ending:
        """Return how the run ended."""
        return self.ended or (Ending() if self.finished else self._broken())

    def _broken(self) -> Ending:
        """A rank that loses its peer fails too, and torchrun then ends the rest with SIGTERM. So
        the order is: who was ended by another signal, who left without a word, who raised first.
        """
        codes: dict[int, int] = {}  # of ranks that failed, by torchrun
        for journal in (self.own, *self.others.values()):
            told = journal.facts.get("codes", {})
            codes.update((int(rank), code) for rank, code in told.items())
        if not self.journals:
            return self._none_began(min(codes, default=None))
        lost = [host for host, each in self.others.items() if not each.finished]

        def order(each: Journal) -> tuple[int, float]:
            code = codes.get(each.rank, 0)
            if each.finished:
                return (9 if code in (0, -signal.SIGTERM) else 6), 0.0
            if each.error:
                return (3 if _PEER_LOST.search(each.error) else 2), each.error_time or 0.0
            if code == -signal.SIGTERM or each.host in lost:
                return 7, 0.0
            return (0 if code < 0 else 1), 0.0

        first = min(self.journals.values(), key=order)
        cause = order(first)[0]
        if lost and cause > 2:
            return Ending(f"{' and '.join(lost)} was lost in the middle of the step")
        if cause > 3 and len(self.journals) < self.count:
            rank = next((rank for rank in codes if rank not in self.journals), None)
            started = f"{len(self.journals)} of {self.count} ranks started"
            return Ending(f"{started}, torchrun {_manner(self.code or 0)}", rank)
        if cause == 9:
            return Ending(f"torchrun {_manner(self.code or 0)}")
        return Ending(self._explained(first, codes.get(first.rank)), first.rank)

    def _none_began(self, rank: int | None) -> Ending:
        """Explain a run of which no rank came to write anything down."""
        error, asked = (self.own.error or "").partition("\n")[0], self.asked
        if asked is None or not _NOT_MET.match(error):
            return Ending(self._explained(self.own, self.code), rank)
        absent = [host for host in asked.hosts if host not in (self.here, *self.others)]
        for host, journal in self.others.items():
            if journal.error and not absent:
                return Ending(f"on {host}, {self._explained(journal, None)}")
        place = f"{asked.address} port {asked.port} of {next(iter(asked.hosts))}"
        return Ending(
            f"{self.here} did not meet {' and '.join(absent or self.others)} at {place} ({error}):"
            " let TCP through between the hosts, or declare smoke_across_address for a host that"
            " others see under another address"
        )

    def late(self, limit: str) -> Ending:
        """Explain a run that is still going at its deadline: who has come least far.

        + limit: what to call the deadline
        """
        if not self.journals:
            return Ending(f"torchrun was still at '{self.own.step}' after {limit}", hung=True)
        if (started := len(self.journals)) < self.count:
            return Ending(f"{started} of {self.count} ranks had started after {limit}", hung=True)
        least = min(len(journal.steps) for journal in self.journals.values())
        behind = [each for each in self.journals.values() if len(each.steps) == least]
        at = f"still at '{behind[0].step}' after {limit}"
        if len(behind) < self.count or self.count == 1:
            rank = behind[0].rank
            return Ending(f"{self._name(rank)} was {at}", rank, hung=True)
        return Ending(f"all ranks were {at}", hung=True)

    def host_of(self, rank: int) -> str:
        """Return the host of a rank."""
        return self.journals[rank].host or self.here

    def _name(self, rank: int) -> str:
        return f"rank {rank} on {self.host_of(rank)}" if self.asked else f"rank {rank}"

    def _explained(self, journal: Journal, code: int | None) -> str:
        name = "torchrun" if journal.rank == HOST else self._name(journal.rank)
        who = f"{name} (pid {journal.pid})"
        if journal.error is not None:
            return f"{who} raised at '{journal.step}': {journal.error.splitlines()[0]}"
        manner = "ended without an error" if code is None else _manner(code)
        if journal.finished and journal.rank != HOST:
            return f"{who} {manner} after its work was done"
        return f"{who} {manner} at '{journal.step}', before its work was done"

    # -- what it left to read

    @property
    def _log(self) -> Path:
        return self.directory / "torchrun.log"

    def logs_of(self, rank: int) -> list[Path]:
        """Return the files with what a rank printed, standard error, which has tracebacks, first;
        those without a word, and those on other hosts, are left out.
        """
        journal = self.journals.get(rank, Journal(rank, local_rank=rank))
        if journal.host:
            return []
        place = journal.local_rank
        files = sorted(self.directory.glob(f"logs/*/attempt_0/{place}/std*.log"))
        return [path for path in files if path.stat().st_size]

    def log_of(self, rank: int | None) -> str | None:
        """Return the first of them, None where there is none, or no rank in particular."""
        logs = [] if rank is None else self.logs_of(rank)
        return str(logs[0]) if logs else None

    def tail(self, rank: int | None) -> list[str]:
        """Return the last lines of a rank's log, or where it hung; of two ranks', or else
        torchrun's, if it is None.
        """
        if rank is not None:
            return self._own_lines(rank)[-_TAIL_LINES:]
        lines = [
            f"[rank {each}] {line}"
            for each in sorted(self.journals)[:2]
            for line in self._own_lines(each)[-_TAIL_LINES // 2 :]
        ]
        return lines or last_lines(self._log, _TAIL_LINES)

    def ended_by_watchdog(self, rank: int) -> bool:
        """Return whether NCCL's watchdog ended a rank: that too is a hang, noticed by another."""
        return any("Watchdog caught collective" in line for line in self.tail(rank))

    def _own_lines(self, rank: int) -> list[str]:
        if stack := last_lines(hang.stack_file(self.directory, rank), 200):
            return hang.main_stack(stack)
        return [line for log in self.logs_of(rank)[:1] for line in last_lines(log, _TAIL_LINES)]


def under_torchrun(
    options: Options,
    mode: str,
    count: int,
    bundle: Path,
    directory: Path,
    measure: Sequence[str],
    variables: Mapping[str, str | None],
) -> Ranks:
    """Return a run of `count` ranks, which measure what is named, see `worker.MEASUREMENTS`.

    + variables: set for them, or with None, removed
    """
    for folder in (environment.RECORDINGS, environment.PIPES):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    asked, here, meeting = options.across, options.host, None
    # Without an address they would meet at the hostname, which need not resolve.
    rendezvous = ["--standalone", "--local-addr", "127.0.0.1"]
    if asked:
        meeting = [asked.address, asked.port, [*asked.hosts].index(here)]
        meeting += [exchange.meeting_s(options), len(asked.hosts)]
        rendezvous, variables = exchange.rendezvous(options, asked)
    nccl = {} if mode == REHEARSAL_CPU else environment.of_nccl(directory)
    clean = environment.clean(os.environ, mode, compiling=options.compile)
    changed: dict[str, str | None] = {**clean, **nccl, **variables}
    kept = {name: value for name, value in changed.items() if value is not None}
    settings = {
        "directory": str(directory),
        "host": options.host,
        "mode": mode,
        "allreduce_mib": options.allreduce_mib,
        "measure": measure,
        "meeting": meeting,
    }
    local = asked.hosts[here] if asked else count
    torchrun = [
        *(sys.executable, str(bundle), "--torchrun", json.dumps(settings)),
        *(*rendezvous, "--nproc-per-node", str(local), "--max-restarts", "0"),
        *("--log-dir", str(directory / "logs"), "--redirects", "3"),
        *(str(bundle), "--rank", json.dumps(settings)),
    ]
    return Ranks(torchrun, kept, directory, count, here, asked)


def last_lines(path: Path, count: int, most_bytes: int = 64 * 1024) -> list[str]:
    """Return the last `count` lines of `path`, of its last `most_bytes`; none where it is not."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most_bytes))
        return file.read().decode(errors="replace").splitlines()[-count:]


def _manner(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    known = {each.value: each.name for each in signal.Signals}
    return f"was ended by signal {-code} ({known.get(-code, 'unknown')})"


# -- processes that can be ended, whatever happens to whom


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, however that ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _start(
    command: Sequence[str], environment: Mapping[str, str], directory: Path, log: Path
) -> subprocess.Popen[bytes]:
    """Start `command` in a session of its own, with the mark, its output in `log`."""
    launcher = os.getpid()

    def before_exec() -> None:
        die_with_parent()
        if os.getppid() != launcher:  # it ended before the line above took effect
            os._exit(1)

    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            env={**environment, _MARK: f"{launcher}:{directory}"},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=before_exec,  # safe: the launcher has one thread
        )


def _running(directory: Path) -> list[int]:
    """Return the processes that this launcher started in `directory` and that still run."""
    mark, found = f"{_MARK}={os.getpid()}:{directory}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's; of a zombie it is empty
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return sorted(found)


def _end(directory: Path) -> None:
    """End all that this launcher started in `directory`: SIGTERM, and 2 s later SIGKILL.

    Raises TimeoutError if a process survives SIGKILL (stuck in the kernel).
    """
    began = time.monotonic()
    while left := _running(directory):
        waited = time.monotonic() - began
        if waited > _TERM_GRACE + _KILL_LIMIT:
            raise TimeoutError(f"processes {left} survive SIGKILL")
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if waited < _TERM_GRACE else signal.SIGKILL)
        time.sleep(0.1)
