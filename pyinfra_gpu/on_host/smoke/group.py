"""A run of processes that keep journals: started, followed, ended; and what it left to read."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import hang, processes
from .check import Board, Check
from .journal import RANK, Journal, follow
from .worker import stack_file

_POLL = 0.05
_AFTER_FAILURE = 5.0
"""Seconds a run goes on after its first failed check: what follows often narrows the cause."""
_EXIT_WAIT = 1.0
TAIL_LINES = 30
DEADLINE = "deadline"
_ENDED_BY_TORCHRUN = -signal.SIGTERM


@dataclass(frozen=True)
class Plan:
    """What to start, and what to expect of it.

    + commands: torchrun's, or one for each device; count: how many processes keep a journal
    + checks: those that their facts decide; ended: the one that asks for a good end
    """

    commands: Sequence[Sequence[str]]
    environment: Mapping[str, str]
    directory: Path
    kind: str
    count: int
    checks: Sequence[Check]
    ended: Check


@dataclass
class Group:
    """The processes of one plan. `hung`: the deadline came before any check had failed."""

    plan: Plan
    journals: dict[int, Journal] = field(default_factory=dict)
    codes: dict[int, int] = field(default_factory=dict)
    code: int | None = None
    left: list[int] = field(default_factory=list)
    reason: str | None = None
    """Why it was ended: DEADLINE, or who asked for it; None if it ended by itself."""
    hung: bool = False

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
        started = [
            processes.start(command, plan.environment, plan.directory, self._starters_log(number))
            for number, command in enumerate(plan.commands)
        ]
        try:
            self._follow(started, board, limit, interruption)
            if self.reason is None:
                self._note_end(started)
        finally:
            processes.end(plan.directory)
            for each in started:
                each.wait()
        follow(plan.directory, plan.kind, self.journals)
        board.update(plan.checks, self.journals, plan.count, ended=True)
        if self.finished and not board.undecided(plan.checks):
            board.decide([plan.ended], {"ended": self.code})
        else:
            status = "fail" if self.reason in (None, DEADLINE) else "unknown"
            board.close([*plan.checks, plan.ended], *self.failure(limit()[1]), status)

    def _starters_log(self, number: int) -> Path:
        name = "torchrun.log" if self.plan.kind == RANK else f"single{number}.log"
        return self.plan.directory / name

    def _follow(
        self,
        started: Sequence[subprocess.Popen[bytes]],
        board: Board,
        limit: Callable[[], tuple[float, str]],
        interruption: Callable[[], str | None],
    ) -> None:
        """Follow until what was started ends, or until there is a reason to end it."""
        plan, failed = self.plan, None
        while any(each.poll() is None for each in started):
            if follow(plan.directory, plan.kind, self.journals):
                board.update(plan.checks, self.journals, plan.count)
            self._note_gone()
            now = time.monotonic()
            if board.failed and failed is None:
                failed = now
            late = now > limit()[0] or (failed is not None and now > failed + _AFTER_FAILURE)
            self.reason = interruption() or (DEADLINE if late else None)
            if self.reason == DEADLINE:
                self.hung = board.failed is None
                hang.ask_for_stacks(self.journals.values(), plan.directory)
            if self.reason is not None:
                return
            time.sleep(_POLL)
        self._note_gone()

    def _note_gone(self) -> None:
        for journal in self.journals.values():
            if journal.gone is None and journal.pid and not processes.alive(journal.pid):
                journal.gone = time.monotonic()

    def _note_end(self, started: Sequence[subprocess.Popen[bytes]]) -> None:
        codes = {number: each.wait() for number, each in enumerate(started)}
        self.code = next((code for code in codes.values() if code), 0)
        failures = self.plan.directory / "failures.json"
        if self.plan.kind == RANK:
            found = json.loads(failures.read_text()) if failures.exists() else {}
            codes = {int(rank): code for rank, code in found.items()}
        self.codes = {number: code for number, code in codes.items() if code}
        limit = time.monotonic() + _EXIT_WAIT
        while (left := processes.marked(self.plan.directory)) and time.monotonic() < limit:
            time.sleep(_POLL)
        self.left = left

    @property
    def finished(self) -> bool:
        """Return whether all did all their work and the starter had nothing to complain of."""
        done = [journal.finished for journal in self.journals.values()]
        return self.code == 0 and len(done) == self.plan.count and all(done)

    # -- how it ended

    def failure(self, whose: str) -> tuple[str, int | None]:
        """Say in one sentence how a run ended that did not finish, and which process to look at.

        + whose: what to call the limit that it had
        """
        if self.reason == DEADLINE:
            return self._late(whose)
        if self.reason is not None:
            return f"the test was interrupted by {self.reason}", None
        one, journals = self.plan.kind.replace("single", "process"), self.journals
        unfinished = [journal for journal in journals.values() if not journal.finished]
        if found := self._first(unfinished):
            return self._explained(found), found.rank
        starter = "torchrun" if one == RANK else "it"
        for number in range(self.plan.count):
            if number not in journals:
                return (
                    f"{one} {number} never started, {starter} ended with exit code {self.code}",
                    (number if number in self.codes else None),
                )
        for number, code in self.codes.items():
            if journals[number].finished and code != _ENDED_BY_TORCHRUN:
                return f"{one} {number} {_manner(code)} after its work was done", number
        if unfinished:
            return self._explained(unfinished[0]), unfinished[0].rank
        return f"{starter} ended with exit code {self.code}", None

    def _first(self, unfinished: Sequence[Journal]) -> Journal | None:
        """A rank that loses its peer fails too, and torchrun then ends the rest. So the order is:
        who was killed, who left without a word, who raised first.

        Killed is who was ended by a signal, not by torchrun, and not after an exception of its
        own: a rank that leaves gloo by way of an exception may abort on its way out.
        """
        silent = sorted(
            (j for j in unfinished if not j.error and self.codes.get(j.rank) != _ENDED_BY_TORCHRUN),
            key=lambda journal: (self.codes.get(journal.rank, 0) >= 0, journal.gone or 1e300),
        )
        raised = sorted((j for j in unfinished if j.error), key=lambda j: j.error_time or 0.0)
        return next(iter([*silent, *raised]), None)

    def _explained(self, journal: Journal) -> str:
        who = f"{self.plan.kind.replace('single', 'process')} {journal.rank} (pid {journal.pid})"
        if journal.error is not None:
            return f"{who} raised at '{journal.step}': {journal.error.splitlines()[0]}"
        code = self.codes.get(journal.rank)
        manner = "ended without an error" if code is None else _manner(code)
        return f"{who} {manner} at '{journal.step}', before its work was done"

    def _late(self, whose: str) -> tuple[str, int | None]:
        """Explain a run that was still going at its deadline: who had come least far."""
        one = self.plan.kind.replace("single", "process")
        missing = next((each for each in range(self.plan.count) if each not in self.journals), None)
        if missing is not None:
            return f"{one} {missing} had not started after {whose}", missing
        return least_far(self.journals, one, whose)

    # -- what it left to read

    def logs_of(self, number: int) -> list[Path]:
        """Return the files with what a process printed, standard error, which has tracebacks,
        first; those without a word are left out.
        """
        if self.plan.kind == RANK:
            place = self.journals[number].local_rank if number in self.journals else number
            files = sorted(self.plan.directory.glob(f"logs/*/attempt_0/{place}/std*.log"))
        else:
            files = [self._starters_log(number)]
        return [path for path in files if path.exists() and path.stat().st_size]

    def stack_of(self, number: int) -> Path | None:
        """Return the file with the stacks of a process that hung, None if it left none."""
        path = stack_file(self.plan.directory, self.plan.kind, number)
        return path if path.exists() and path.stat().st_size else None

    def tail(self, number: int | None) -> list[str]:
        """Return the last lines of a process's log, or where it hung; of two processes', or else
        the starter's, if it is None.
        """
        if number is not None:
            return self._own_lines(number)[-TAIL_LINES:]
        lines = []
        for each in sorted(self.journals)[:2]:
            share = self._own_lines(each)[-TAIL_LINES // 2 :]
            lines += [f"[{self.plan.kind} {each}] {line}" for line in share]
        return lines or last_lines(self._starters_log(0), TAIL_LINES)

    def _own_lines(self, number: int) -> list[str]:
        if stack := self.stack_of(number):
            return hang.main_stack(last_lines(stack, 200))
        return [line for log in self.logs_of(number)[:1] for line in last_lines(log, TAIL_LINES)]


def least_far(journals: Mapping[int, Journal], one: str, whose: str) -> tuple[str, int | None]:
    """Say who had come least far at the deadline, and which process that is, if one alone."""
    least = min(len(journal.steps) for journal in journals.values())
    behind = [journal for journal in journals.values() if len(journal.steps) == least]
    step = behind[0].step
    if len(behind) < len(journals):
        rank = behind[0].rank
        return f"{one} {rank} was still at '{step}' after {whose}", rank
    every = f"all {one}s were" if len(journals) > 1 else f"{one} 0 was"
    return f"{every} still at '{step}' after {whose}", None


def last_lines(path: Path, count: int, most_bytes: int = 64 * 1024) -> list[str]:
    """Return the last `count` lines of `path`, of its last `most_bytes`."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most_bytes))
        return file.read().decode(errors="replace").splitlines()[-count:]


def _manner(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    known: Iterable[int] = {each.value for each in signal.Signals}
    name = signal.Signals(-code).name if -code in known else "unknown"
    return f"was ended by signal {-code} ({name})"
