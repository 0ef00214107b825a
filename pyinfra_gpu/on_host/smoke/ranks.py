"""A run of this host's ranks under torchrun, as training is started: followed, ended, explained.

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

from . import environment, hang
from .check import Judged
from .document import Status
from .journal import HOST, Journal, file_of
from .listening import interface_of, seen_by
from .options import REHEARSAL_CPU, Options

_POLL, _EXIT_WAIT = 0.05, 1.0
_MARK = "PYINFRA_GPU_SMOKE_TEST"
"""The variable that all processes of a test carry; its value names launcher and folder."""
_TERM_GRACE, _KILL_LIMIT = 2.0, 5.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)  # loaded here: as little as possible is done after a fork
_TAIL_LINES = 30
_MEETING_S = 60
_PEER_LOST = re.compile(
    r"connection (?:was )?(?:likely )?(?:closed|reset|refused)|broken pipe|timed? ?out|socket|"
    r"remote (?:process|rank|peer)|unhandled system error",
    re.IGNORECASE,
)
"""What a rank raises that lost another one: seldom the cause, if any other rank failed."""
_NOT_MET = re.compile(r"(?:Rendezvous|Dist)\w*Error")
"""What torchrun raises that does not find the other hosts'."""


@dataclass
class Ranks:
    """The ranks of one run on this host, and torchrun, which starts them.

    + own: the host's journal; journals: rank -> its journal
    + left: processes that were still there when torchrun had ended
    + ended: why it was ended; None: by itself; hung: because it did not go on
    """

    options: Options
    directory: Path
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    own: Journal = field(default_factory=lambda: Journal(HOST))
    journals: dict[int, Journal] = field(default_factory=dict)
    code: int | None = None
    left: list[int] = field(default_factory=list)
    ended: Judged | None = None
    hung: bool = False

    def run(self, to_end: Callable[[bool], Judged | None]) -> None:
        """Run to the end, or end it; when this returns nothing of it runs any more.

        + to_end: asked again and again: why to end it now, None while there is no reason; it is
          told whether anything new was written down
        """
        torchrun = _start(self.command, self.environment, self.directory, self.log)
        try:
            while torchrun.poll() is None and self.ended is None:
                self.ended = to_end(self._follow())
                time.sleep(_POLL)
            if self.ended is None:
                self.code = torchrun.wait()
                limit = time.monotonic() + _EXIT_WAIT
                while (left := _running(self.directory)) and time.monotonic() < limit:
                    time.sleep(_POLL)
                self.left = left
            elif self.hung:
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
        for path in sorted(self.directory.glob("*.jsonl")):
            journal = self.own
            if path != file_of(self.directory, HOST):
                rank = int(path.stem.removeprefix("rank"))
                journal = self.journals.setdefault(rank, Journal(rank))
            news = journal.follow(path) or news
        return news

    @property
    def finished(self) -> bool:
        """Whether all did all their work and torchrun had nothing to complain of."""
        done = [journal.finished for journal in self.journals.values()]
        return self.code == 0 and len(done) == self.options.ranks_here and all(done)

    def everyone(self) -> dict[int, Journal]:
        """Return rank -> its journal, of all hosts where they have told each other."""
        reported = (
            each.facts["everyone"] for each in self.journals.values() if each.has(["everyone"])
        )
        facts: Mapping[str, dict[str, object]] = next(reported, {})
        others = {int(rank): Journal(int(rank), facts=each) for rank, each in facts.items()}
        return {**others, **self.journals}

    # -- how it ended

    def ending(self) -> Judged:
        """Return how the run ended: a pass if all did all their work."""
        return self.ended or (Judged("pass", "") if self.finished else self._broken())

    def _broken(self) -> Judged:
        """A rank that loses its peer fails too, and torchrun then ends the rest with SIGTERM. So
        the order is: who was ended by another signal, who left without a word, who raised first.
        """
        codes = {int(rank): code for rank, code in self.own.facts.get("codes", {}).items()}
        count = self.options.ranks_here
        if not self.journals:
            return self._none_began(min(codes, default=None))

        def order(each: Journal) -> tuple[int, float]:
            code = codes.get(each.rank, 0)
            if each.finished:
                return (6 if code in (0, -signal.SIGTERM) else 4), 0.0
            if each.error:
                return (3 if _PEER_LOST.search(each.error) else 2), each.error_time
            if code == -signal.SIGTERM:
                return 5, 0.0
            return (0 if code < 0 else 1), 0.0

        first = min(self.journals.values(), key=order)
        cause = order(first)[0]
        if cause > 3 and len(self.journals) < count:
            rank = next((rank for rank in codes if rank not in self.journals), None)
            started = f"{len(self.journals)} of {count} ranks started"
            return Judged("fail", f"{started}, torchrun {_manner(self.code or 0)}", rank)
        if cause == 6:
            return Judged("fail", f"torchrun {_manner(self.code or 0)}")
        # What waits for ranks of other hosts may be the fault of one of these.
        waits = cause == 3 or self.ended_by_watchdog(first.rank)
        status: Status = "unknown" if self.options.hosts and waits else "fail"
        return Judged(status, _explained(first, codes.get(first.rank)), first.rank)

    def _none_began(self, rank: int | None) -> Judged:
        """Explain a run of which no rank came to write anything down."""
        asked, error = self.options, (self.own.error or "").partition("\n")[0]
        if not asked.hosts or not _NOT_MET.match(error):
            return Judged("fail", _explained(self.own, self.code), rank)
        others = " and ".join(name for name in asked.hosts if name != asked.host)
        return Judged(
            "fail",
            f"{asked.host} did not meet {others} at {asked.address} port {asked.port} of"
            f" {next(iter(asked.hosts))} ({error}): let TCP through between the hosts, or declare"
            " smoke_across_address for a host that others see under another address",
        )

    def late(self, limit: str) -> Judged:
        """Explain a run that is still going at its deadline: who has come least far.

        + limit: what to call the deadline
        """
        self.hung = True
        started, count = list(self.journals.values()), self.options.ranks_here
        if not started:
            return Judged("fail", f"torchrun was still at '{self.own.step}' after {limit}")
        if len(started) < count:
            return Judged("fail", f"{len(started)} of {count} ranks had started after {limit}")
        least = min(len(journal.steps) for journal in started)
        behind = [each for each in started if len(each.steps) == least]
        one = behind[0].rank if len(behind) < count or count == 1 else None
        who = "all ranks were" if one is None else f"rank {one} was"
        return Judged("fail", f"{who} still at '{behind[0].step}' after {limit}", one)

    # -- what it left to read

    @property
    def log(self) -> Path:
        """What torchrun itself printed."""
        return self.directory / "torchrun.log"

    def logs_of(self, rank: int | None) -> list[Path]:
        """Return the files with what a rank printed, standard error, which has tracebacks, first;
        those without a word are left out.
        """
        if rank is None:
            return []
        place = self.journals.get(rank, Journal(rank, local_rank=rank)).local_rank
        files = sorted(self.directory.glob(f"logs/*/attempt_0/{place}/std*.log"))
        return [path for path in files if path.stat().st_size]

    def tail(self, rank: int | None) -> list[str]:
        """Return where a rank hung, or else the last lines of its log; of the first one, or else
        torchrun's, if it is None.
        """
        rank = min(self.journals, default=None) if rank is None else rank
        stack = [] if rank is None else last_lines(hang.stack_file(self.directory, rank), 200)
        log = (self.logs_of(rank) or [self.log])[0]
        return (hang.main_stack(stack) or last_lines(log, _TAIL_LINES))[-_TAIL_LINES:]

    def ended_by_watchdog(self, rank: int) -> bool:
        """Return whether NCCL's watchdog ended a rank: that too is a hang, noticed by another."""
        return any("Watchdog caught collective" in line for line in self.tail(rank))


def under_torchrun(
    options: Options,
    bundle: Path,
    directory: Path,
    measure: Sequence[str],
    changes: Mapping[str, str | None],
) -> Ranks:
    """Return a run of ranks, which measure what is named, see `worker.MEASUREMENTS`.

    + changes: variables that are set for them, or with None, removed
    """
    for folder in (environment.RECORDINGS, environment.PIPES):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    where, of_meeting = _meeting(options)
    nccl = {} if options.mode == REHEARSAL_CPU else environment.of_nccl(directory)
    clean = environment.clean(os.environ, options.mode, compiling=options.compile)
    changed: dict[str, str | None] = {**clean, **nccl, **of_meeting, **changes}
    kept = {name: value for name, value in changed.items() if value is not None}
    settings = json.dumps([asdict(options), str(directory), measure])
    command = [
        *(sys.executable, str(bundle), "--torchrun", settings),
        *(*where, "--nproc-per-node", str(options.ranks_here), "--max-restarts", "0"),
        *("--log-dir", str(directory / "logs"), "--redirects", "3"),
        *(str(bundle), "--rank", settings),
    ]
    return Ranks(options, directory, command, kept)


def _meeting(options: Options) -> tuple[list[str], dict[str, str | None]]:
    """Return torchrun's arguments for where its ranks meet, and the variables for what they send.

    The hosts of a step meet at the first one's store, for which each has a minute.
    """
    if not options.hosts:  # without an address it would be the hostname, which need not resolve
        return ["--standalone", "--local-addr", "127.0.0.1"], {}
    is_first = options.host == next(iter(options.hosts))
    local = options.address if is_first else seen_by(options.address)
    shown = f"[{options.address}]" if ":" in options.address else options.address
    seconds = min(_MEETING_S, options.deadline_s // 3)
    arguments = [
        *("--nnodes", str(len(options.hosts)), "--rdzv-id", str(options.fingerprint)),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{shown}:{options.port}"),
        *("--local-addr", local, "--rdzv-conf"),
        f"is_host={is_first},join_timeout={seconds},read_timeout={seconds}",
    ]
    interface = interface_of(local)
    return arguments, {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}


def last_lines(path: Path, count: int, most_bytes: int = 64 * 1024) -> list[str]:
    """Return the last `count` lines of `path`, of its last `most_bytes`; none where it is not."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most_bytes))
        return file.read().decode(errors="replace").splitlines()[-count:]


def _explained(journal: Journal, code: int | None) -> str:
    name = "torchrun" if journal.rank == HOST else f"rank {journal.rank}"
    who = f"{name} (pid {journal.pid})"
    if journal.error is not None:
        return f"{who} raised at '{journal.step}': {journal.error.splitlines()[0]}"
    manner = "ended without an error" if code is None else _manner(code)
    if journal.finished and journal.rank != HOST:
        return f"{who} {manner} after its work was done"
    return f"{who} {manner} at '{journal.step}', before its work was done"


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
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            env={**environment, _MARK: f"{os.getpid()}:{directory}"},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,  # safe: the launcher has one thread
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
