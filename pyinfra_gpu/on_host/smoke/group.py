"""A run of ranks under torchrun: started, followed, ended; and what it left to read."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from . import hang, processes
from .check import TORCHRUN, Board, Check, Facts, Want, fail
from .journal import AGENT, Journal, follow

_POLL = 0.05
_AFTER_FAILURE = 5.0
"""Seconds a run goes on after its first failed check: what follows often narrows the cause."""
_EXIT_WAIT = 1.0
TAIL_LINES = 30
DEADLINE = "deadline"
STOPPED = "the controller"
_ENDED_BY_TORCHRUN = -signal.SIGTERM

Kind = Literal[
    "port", "gone", "unreached", "absent", "killed", "raised", "interrupted",
    "late", "peer", "stopped", "done",
]  # fmt: skip
"""How a run of ranks ended, the first four of a step across hosts alone. In this order one is the
cause of the others: a machine that is gone takes its ranks along, a rank that is killed makes those
of other hosts lose a connection."""


def _ended(facts: Facts, _: Want) -> str:
    if code := facts[0]["ended"]:
        fail(f"exit code {code}")
    return "exit code 0"


ENDED = Check("S4.finished", ("ended",), _ended)


@dataclass(frozen=True)
class Ending:
    """How a run ended, in one sentence, and which rank to look at."""

    kind: Kind
    sentence: str = ""
    rank: int | None = None


@dataclass(frozen=True)
class Plan:
    """What to start, and what to expect of it.

    + command: torchrun's; count: how many ranks it starts here
    + checks: those that the facts of ranks decide, and of torchrun (`Check.by` == TORCHRUN)
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    directory: Path
    count: int
    checks: Sequence[Check]


@dataclass
class Group:
    """The processes of one plan. `hung`: the deadline came before any check had failed."""

    plan: Plan
    journals: dict[int, Journal] = field(default_factory=dict)
    agent: Journal = field(default_factory=lambda: Journal(AGENT))
    code: int | None = None
    left: list[int] = field(default_factory=list)
    reason: str | None = None
    """Why it was ended: DEADLINE, or who asked for it; None if it ended by itself."""
    hung: bool = False

    @property
    def codes(self) -> dict[int, int]:
        """Return the exit codes of ranks that failed, negative for signals, as torchrun tells."""
        told = self.agent.facts.get("codes", {})
        return {int(rank): code for rank, code in told.items() if code}

    def run(
        self,
        board: Board,
        limit: Callable[[], tuple[float, str]],
        interruption: Callable[[], str | None],
    ) -> None:
        """Run to the end, or end it; when this returns nothing of it runs any more, and whatever
        did not finish is blamed on the first check that was not decided.

        + limit: the moment at which it must have ended and what to call that, asked again and
          again, for it depends on which checks are decided
        """
        plan = self.plan
        torchrun = processes.start(plan.command, plan.environment, plan.directory, self._own_log)
        try:
            self._follow(torchrun, board, limit, interruption)
            if self.reason is None:
                self._note_end(torchrun)
        finally:
            processes.end(plan.directory)
            torchrun.wait()
        self._decide(board, ended=True)
        if self.finished and not board.undecided(plan.checks):
            board.decide([ENDED], {"ended": self.code})
        else:
            ending = self.ending(limit()[1])
            blamed = self.reason in (None, DEADLINE)
            status: Literal["fail", "unknown"] = "fail" if blamed else "unknown"
            board.close([*plan.checks, ENDED], ending.sentence, ending.rank, status)

    @property
    def _own_log(self) -> Path:
        return self.plan.directory / "torchrun.log"

    def _decide(self, board: Board, *, ended: bool = False) -> None:
        """Decide what can be, by what was written since the last time."""
        checks, directory = self.plan.checks, self.plan.directory
        if follow(directory, self.journals, self.agent) or ended:
            of_torchrun = [each for each in checks if each.by == TORCHRUN]
            of_ranks = [each for each in checks if each.by != TORCHRUN]
            board.update(of_torchrun, {0: self.agent}, 1, ended=ended)
            board.update(of_ranks, self.journals, self.plan.count, ended=ended)

    def _follow(
        self,
        torchrun: subprocess.Popen[bytes],
        board: Board,
        limit: Callable[[], tuple[float, str]],
        interruption: Callable[[], str | None],
    ) -> None:
        """Follow until torchrun ends, or until there is a reason to end it."""
        failed = None
        while torchrun.poll() is None:
            self._decide(board)
            self._note_gone()
            now = time.monotonic()
            if board.failed and failed is None:
                failed = now
            late = now > limit()[0] or (failed is not None and now > failed + _AFTER_FAILURE)
            self.reason = interruption() or (DEADLINE if late else None)
            self.hung = self.reason == DEADLINE and board.failed is None
            if self.hung:
                hang.ask_for_stacks(self.journals.values(), self.plan.directory)
            if self.reason is not None:
                return
            time.sleep(_POLL)
        self._note_gone()

    def _note_gone(self) -> None:
        for journal in self.journals.values():
            if journal.gone is None and journal.pid and not processes.alive(journal.pid):
                journal.gone = time.monotonic()

    def _note_end(self, torchrun: subprocess.Popen[bytes]) -> None:
        self.code = torchrun.wait()
        limit = time.monotonic() + _EXIT_WAIT
        while (left := processes.marked(self.plan.directory)) and time.monotonic() < limit:
            time.sleep(_POLL)
        self.left = left

    @property
    def finished(self) -> bool:
        """Return whether all did all their work and torchrun had nothing to complain of."""
        done = [journal.finished for journal in self.journals.values()]
        return self.code == 0 and len(done) == self.plan.count and all(done)

    # -- how it ended

    def ending(self, whose: str) -> Ending:
        """Return how the run ended.

        + whose: what to call the limit that it had
        """
        if self.reason == DEADLINE and self.hung:
            return self._late(whose)
        if self.reason == DEADLINE:
            return Ending("stopped", "the ranks were ended after a failed check")
        if self.reason == STOPPED:
            return Ending("stopped", "the ranks were ended with the other hosts'")
        if self.reason is not None:
            return Ending("interrupted", f"the test was interrupted by {self.reason}")
        if self.finished:
            return Ending("done")
        if not self.journals:
            sentence = _explained("torchrun", self.agent, self.code)
            return Ending("raised", sentence, next(iter(self.codes), None))
        return self._of_ranks()

    def _of_ranks(self) -> Ending:
        """A rank that loses its peer fails too, and torchrun then ends the rest. So the order is:
        who was killed, who left without a word, who raised first.

        Killed is who was ended by a signal, not by torchrun, and not after an exception of its
        own: a rank that leaves gloo by way of an exception may abort on its way out.
        """
        codes, unfinished = self.codes, [j for j in self.journals.values() if not j.finished]
        silent = sorted(
            (j for j in unfinished if not j.error and codes.get(j.rank) != _ENDED_BY_TORCHRUN),
            key=lambda journal: (codes.get(journal.rank, 0) >= 0, journal.gone or 1e300),
        )
        raised = sorted((j for j in unfinished if j.error), key=lambda j: j.error_time or 0.0)
        for each in (*silent, *raised):
            who, kind = f"rank {each.rank}", "raised" if each.error else "killed"
            return Ending(kind, _explained(who, each, codes.get(each.rank)), each.rank)  # type: ignore[arg-type]
        if (started := len(self.journals)) < self.plan.count:
            rank = next((rank for rank in codes if rank not in self.journals), None)
            ended = f"torchrun {_manner(self.code or 0)}"
            return Ending("peer", f"{started} of {self.plan.count} ranks started, {ended}", rank)
        for rank, code in codes.items():
            if self.journals[rank].finished and code != _ENDED_BY_TORCHRUN:
                return Ending(
                    "killed", f"rank {rank} {_manner(code)} after its work was done", rank
                )
        for each in unfinished:
            sentence = _explained(f"rank {each.rank}", each, codes.get(each.rank))
            return Ending("killed", sentence, each.rank)
        return Ending("raised", f"torchrun {_manner(self.code or 0)}")

    def _late(self, whose: str) -> Ending:
        """Explain a run that was still going at its deadline: who had come least far."""
        if not self.journals:
            return Ending("late", f"torchrun was still at '{self.agent.step}' after {whose}")
        if (started := len(self.journals)) < self.plan.count:
            return Ending("late", f"{started} of {self.plan.count} ranks had started after {whose}")
        return least_far(self.journals, whose)

    # -- what it left to read

    def logs_of(self, rank: int) -> list[Path]:
        """Return the files with what a rank printed, standard error, which has tracebacks, first;
        those without a word are left out.
        """
        place = self.journals[rank].local_rank if rank in self.journals else rank
        files = sorted(self.plan.directory.glob(f"logs/*/attempt_0/{place}/std*.log"))
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
        return lines or last_lines(self._own_log, TAIL_LINES)

    def _own_lines(self, rank: int) -> list[str]:
        if stack := last_lines(hang.stack_file(self.plan.directory, rank), 200):
            return hang.main_stack(stack)
        return [line for log in self.logs_of(rank)[:1] for line in last_lines(log, TAIL_LINES)]


def least_far(journals: Mapping[int, Journal], whose: str) -> Ending:
    """Say who had come least far at the deadline, and which rank that is, if one alone."""
    least = min(len(journal.steps) for journal in journals.values())
    behind = [journal for journal in journals.values() if len(journal.steps) == least]
    at = f"still at '{behind[0].step}' after {whose}"
    if len(behind) < len(journals) or len(journals) == 1:
        rank = behind[0].rank
        return Ending("late", f"rank {rank} was {at}", rank)
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
    at = f"at '{journal.step}', before its work was done"
    return f"{who} (pid {journal.pid}) {manner} {at}"


def _manner(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    known = {each.value: each.name for each in signal.Signals}
    return f"was ended by signal {-code} ({known.get(-code, 'unknown')})"
