"""A run of ranks under torchrun, as training is started: followed, ended, explained.

torchrun puts each rank in a session of its own, so no process group holds them all. All that a run
starts carries its mark in the environment instead, by which it is found; and what the launcher
starts is killed by the kernel when the launcher ends, as the ranks are with torchrun.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from . import environment, hang
from .journal import HOST, Journal, file_of
from .options import REHEARSAL_CPU, Options

_POLL, _EXIT_WAIT = 0.05, 1.0
_MARK = "PYINFRA_GPU_SMOKE_TEST"
"""The variable that all processes of a test carry; its value names launcher and folder."""
_TERM_GRACE, _KILL_LIMIT = 2.0, 5.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)  # loaded here: as little as possible is done after a fork
TAIL_LINES = 30
DEADLINE, FAILED, STOPPED = "deadline", "a failed check", "the controller"
"""Why a run is ended; besides these, the name of a signal."""

Kind = Literal[
    "port", "gone", "unreached", "absent", "killed", "raised", "interrupted",
    "late", "peer", "stopped", "done",
]  # fmt: skip
"""How a run of ranks ended, the first four of a step across hosts alone. In this order one is the
cause of the others: a machine that is gone takes its ranks along, a rank that is killed makes those
of other hosts lose a connection."""


@dataclass(frozen=True)
class Ending:
    """How a run of ranks on one host ended, in one sentence; "done" is the good kind.

    + rank: the rank to look at; tail: the last lines that it printed
    + host: whom it is about, which is not always who tells it
    """

    kind: Kind
    sentence: str = ""
    rank: int | None = None
    host: str = ""
    tail: tuple[str, ...] = ()


@dataclass
class Ranks:
    """The ranks of one run on this host, and torchrun, which starts them.

    + own: the host's journal; journals: rank -> its journal
    + left: processes that were still there when torchrun had ended
    + reason: why it was ended: DEADLINE, FAILED, STOPPED or a signal's name; None: by itself
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    directory: Path
    count: int
    own: Journal = field(default_factory=lambda: Journal(HOST))
    journals: dict[int, Journal] = field(default_factory=dict)
    code: int | None = None
    left: list[int] = field(default_factory=list)
    reason: str | None = None

    def run(self, to_end: Callable[[bool], str | None]) -> None:
        """Run to the end, or end it; when this returns nothing of it runs any more.

        + to_end: asked again and again: the reason to end it now, None while there is none; it is
          told whether anything new was written down
        """
        torchrun = _start(self.command, self.environment, self.directory, self._log)
        try:
            while torchrun.poll() is None and self.reason is None:
                self.reason = to_end(self._follow())
                time.sleep(_POLL)
            if self.reason is None:
                self.code = torchrun.wait()
                limit = time.monotonic() + _EXIT_WAIT
                while (left := _running(self.directory)) and time.monotonic() < limit:
                    time.sleep(_POLL)
                self.left = left
            elif self.reason == DEADLINE:
                there = _running(self.directory)
                pids = [each.pid for each in self.journals.values() if each.pid in there]
                hang.ask_for_stacks(pids, self.directory)
        finally:
            _end(self.directory)
            torchrun.wait()
        self._follow()

    def _follow(self) -> bool:
        """Read what was written down; return whether there was anything new."""
        mine = file_of(self.directory, HOST)
        news = mine.exists() and self.own.follow(mine)
        for path in sorted(self.directory.glob("rank*.jsonl")):
            rank = int(path.stem.removeprefix("rank"))
            news = self.journals.setdefault(rank, Journal(rank)).follow(path) or news
        return news

    @property
    def finished(self) -> bool:
        """Return whether all did all their work and torchrun had nothing to complain of."""
        done = [journal.finished for journal in self.journals.values()]
        return self.code == 0 and len(done) == self.count and all(done)

    # -- how it ended

    def ending(self, limit: str) -> Ending:
        """Return how the run ended.

        + limit: what to call its deadline
        """
        if self.reason == DEADLINE:
            return self._late(limit)
        if self.reason in (FAILED, STOPPED):
            return Ending("stopped", f"the ranks were ended by {self.reason}")
        if self.reason is not None:
            return Ending("interrupted", f"the test was interrupted by {self.reason}")
        return Ending("done") if self.finished else self._broken()

    def _broken(self) -> Ending:
        """A rank that loses its peer fails too, and torchrun then ends the rest with SIGTERM. So
        the order is: who was ended by another signal, who left without a word, who raised first.
        """
        told = self.own.facts.get("codes", {})  # of ranks that failed, by torchrun
        codes, by_torchrun = {int(rank): code for rank, code in told.items()}, -signal.SIGTERM
        if not self.journals:
            sentence = _explained("torchrun", self.own, self.code)
            return Ending("raised", sentence, min(codes, default=None))
        unfinished = [each for each in self.journals.values() if not each.finished]
        silent = [j for j in unfinished if not j.error and codes.get(j.rank) != by_torchrun]
        silent.sort(key=lambda journal: codes.get(journal.rank, 0) >= 0)
        raised = sorted((j for j in unfinished if j.error), key=lambda j: j.error_time or 0.0)
        if first := next(iter([*silent, *raised]), None):
            sentence = _explained(f"rank {first.rank}", first, codes.get(first.rank))
            return Ending("raised" if first.error else "killed", sentence, first.rank)
        ended = f"torchrun {_manner(self.code or 0)}"
        if (started := len(self.journals)) < self.count:
            rank = next((rank for rank in codes if rank not in self.journals), None)
            return Ending("peer", f"{started} of {self.count} ranks started, {ended}", rank)
        for rank, code in codes.items():
            if self.journals[rank].finished and code != by_torchrun:
                sentence = f"rank {rank} {_manner(code)} after its work was done"
                return Ending("killed", sentence, rank)
        for each in unfinished:
            sentence = _explained(f"rank {each.rank}", each, codes.get(each.rank))
            return Ending("killed", sentence, each.rank)
        return Ending("raised", ended)

    def _late(self, limit: str) -> Ending:
        """Explain a run that was still going at its deadline: who had come least far."""
        if not self.journals:
            return Ending("late", f"torchrun was still at '{self.own.step}' after {limit}")
        if (started := len(self.journals)) < self.count:
            return Ending("late", f"{started} of {self.count} ranks had started after {limit}")
        return least_far(self.journals, limit)

    # -- what it left to read

    @property
    def _log(self) -> Path:
        return self.directory / "torchrun.log"

    def logs_of(self, rank: int) -> list[Path]:
        """Return the files with what a rank printed, standard error, which has tracebacks, first;
        those without a word are left out.
        """
        place = self.journals[rank].local_rank if rank in self.journals else rank
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
            return self._own_lines(rank)[-TAIL_LINES:]
        lines = [
            f"[rank {each}] {line}"
            for each in sorted(self.journals)[:2]
            for line in self._own_lines(each)[-TAIL_LINES // 2 :]
        ]
        return lines or last_lines(self._log, TAIL_LINES)

    def _own_lines(self, rank: int) -> list[str]:
        if stack := last_lines(hang.stack_file(self.directory, rank), 200):
            return hang.main_stack(stack)
        return [line for log in self.logs_of(rank)[:1] for line in last_lines(log, TAIL_LINES)]


def under_torchrun(
    options: Options,
    mode: str,
    count: int,
    bundle: Path,
    directory: Path,
    measure: Sequence[str],
    variables: Mapping[str, str | None],
    rendezvous: Sequence[str] = ("--standalone", "--local-addr", "127.0.0.1"),
) -> Ranks:
    """Return `count` ranks to be run, which measure what is named, see `worker.MEASUREMENTS`.

    + variables: set for them, or with None, removed
    + rendezvous: where all meet; without an address it would be the hostname, which need not
      resolve
    """
    for folder in (environment.RECORDINGS, environment.PIPES):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    nccl = {} if mode == REHEARSAL_CPU else environment.of_nccl(directory)
    clean = environment.clean(os.environ, mode, compiling=options.compile)
    changed: dict[str, str | None] = {**clean, **nccl, **variables}
    kept = {name: value for name, value in changed.items() if value is not None}
    settings = {
        "directory": str(directory),
        "mode": mode,
        "allreduce_mib": options.allreduce_mib,
        "measure": measure,
        "variables": [*kept],
    }
    torchrun = [
        *(sys.executable, str(bundle), "--torchrun", str(directory)),
        *(*rendezvous, "--nproc-per-node", str(count), "--max-restarts", "0"),
        *("--log-dir", str(directory / "logs"), "--redirects", "3"),
        *(str(bundle), "--rank", json.dumps(settings)),
    ]
    return Ranks(torchrun, kept, directory, count)


def least_far(journals: Mapping[int, Journal], limit: str) -> Ending:
    """Say who had come least far at the deadline, and which rank that is, if one alone."""
    least = min(len(journal.steps) for journal in journals.values())
    behind = [journal for journal in journals.values() if len(journal.steps) == least]
    at = f"still at '{behind[0].step}' after {limit}"
    if len(behind) < len(journals) or len(journals) == 1:
        return Ending("late", f"rank {behind[0].rank} was {at}", behind[0].rank)
    return Ending("late", f"all ranks were {at}")


def last_lines(path: Path, count: int, most_bytes: int = 64 * 1024) -> list[str]:
    """Return the last `count` lines of `path`, of its last `most_bytes`; none where it is not."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most_bytes))
        return file.read().decode(errors="replace").splitlines()[-count:]


def _explained(who: str, journal: Journal, code: int | None) -> str:
    if journal.error is not None:
        error = journal.error.splitlines()[0]
        return f"{who} (pid {journal.pid}) raised at '{journal.step}': {error}"
    manner = "ended without an error" if code is None else _manner(code)
    return f"{who} (pid {journal.pid}) {manner} at '{journal.step}', before its work was done"


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
