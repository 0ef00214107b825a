"""A run of processes that keep journals: started, followed, ended; and what it left to read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .. import processes, stacks
from ..journal import Journal, Reader
from ..judge import failure
from ..judge.check import Check
from ..judge.decisions import Decisions
from ..judge.failure import Failure, Names
from . import hang
from .supervise import Tree

_POLL = 0.05
_AFTER_FAILURE = 5.0
"""Seconds a run goes on after its first failed check: what follows often narrows the cause."""
_EXIT_WAIT = 1.0
_TAIL_LINES = 30
_STACK_LINES = 200
DEADLINE = "deadline"


@dataclass(frozen=True)
class Plan:
    """What to start, and what to expect of it.

    + command, environment: the starter's, which starts one process a participant
    + count: how many keep a journal; kind: of which kind
    + checks: those that their facts decide; ended: the one that asks for a good end
    + log: the starter's own; logs: pattern of the others' below its directory, with their number
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    count: int
    kind: str
    names: Names
    checks: Sequence[Check]
    ended: Check
    log: Path
    logs: str


@dataclass(frozen=True)
class Limit:
    """Until when a run may go on (monotonic clock), and how to say that it did not keep that."""

    until: float
    seconds: int
    whose: str


@dataclass
class Group:
    """The processes of one plan, their journals and logs."""

    plan: Plan
    exit_codes: dict[int, int] = field(default_factory=dict)
    code: int | None = None
    left: list[int] = field(default_factory=list)
    reason: str | None = None
    """Why it was ended: DEADLINE, or the name of a signal; None if it ended by itself."""
    hung: bool = False
    """Whether the deadline came before any check had failed."""

    def __post_init__(self) -> None:
        self._directory = self.plan.log.parent
        self._reader = Reader(self._directory, self.plan.kind)

    @property
    def journals(self) -> dict[int, Journal]:
        """Return number -> what is known of it."""
        return self._reader.journals

    @property
    def finished(self) -> bool:
        """Return whether all did all their work and the starter had nothing to complain of."""
        done = [journal.finished for journal in self.journals.values()]
        return self.code == 0 and len(done) == self.plan.count and all(done)

    def run(
        self,
        decisions: Decisions,
        limit: Callable[[], Limit],
        interruption: Callable[[], str | None],
    ) -> None:
        """Run to the end, or end it; when this returns nothing of it runs any more, and whatever
        did not finish is blamed on the first check that was not decided.

        + limit: asked again and again, for it depends on which checks are decided
        """
        plan = self.plan
        tree = Tree(plan.command, plan.environment, self._directory, plan.log)
        try:
            self._follow(tree, decisions, limit, interruption)
            self.code = tree.code
            self.left = self._leftovers(tree) if self.code is not None else []
        finally:
            tree.end()
        self._reader.follow()
        decisions.update(plan.checks, self.journals, plan.count)
        decisions.blame(plan.checks, self.journals)
        self.exit_codes = failure.exit_codes(plan.log.read_text(errors="replace"))
        if self.finished and not decisions.undecided(plan.checks):
            decisions.decide([plan.ended], {"ended": {"code": self.code, "unfinished": []}})
        else:
            status = "fail" if self.reason in (None, DEADLINE) else "unknown"
            decisions.close([*plan.checks, plan.ended], self._failure(limit()), status)

    def _follow(
        self,
        tree: Tree,
        decisions: Decisions,
        limit: Callable[[], Limit],
        interruption: Callable[[], str | None],
    ) -> None:
        """Follow until the starter ends, or until there is a reason to end it."""
        grace = None
        while tree.code is None:
            if self._reader.follow():
                decisions.update(self.plan.checks, self.journals, self.plan.count)
            self._note_gone()
            self.reason = interruption()
            now = time.monotonic()
            if decisions.stopped and grace is None:
                grace = now + _AFTER_FAILURE
            end = limit().until if grace is None else min(grace, limit().until)
            if self.reason is None and now > end:
                self.reason, self.hung = DEADLINE, not decisions.stopped
                hang.ask_for_stacks(self.journals.values())
                hang.ask_flight_recorder(self._directory)
            if self.reason is not None:
                return
            time.sleep(_POLL)
        self._note_gone()

    def _note_gone(self) -> None:
        for journal in self.journals.values():
            if journal.gone is None and journal.pid and not processes.alive(journal.pid):
                journal.gone = time.monotonic()

    def _leftovers(self, tree: Tree) -> list[int]:
        limit = time.monotonic() + _EXIT_WAIT
        while tree.left() and time.monotonic() < limit:
            time.sleep(_POLL)
        return tree.left()

    def _failure(self, limit: Limit) -> Failure:
        plan, journals = self.plan, self.journals
        if self.reason == DEADLINE:
            return failure.at_deadline(journals, plan.count, limit.seconds, plan.names, limit.whose)
        if self.reason is not None:
            return Failure(f"the test was interrupted by {self.reason}", None)
        log = plan.log.read_text(errors="replace")
        return failure.ended(journals, plan.count, self.code or 0, log, plan.names)

    def log_of(self, number: int) -> Path | None:
        """Return the file with what a process printed, None if it printed nothing."""
        journal = self.journals.get(number)
        place = number if journal is None or journal.local_rank is None else journal.local_rank
        for path in sorted(self._directory.glob(self.plan.logs.format(place)), reverse=True):
            if path.stat().st_size:
                return path
        return None

    def stack_of(self, number: int) -> Path | None:
        """Return the file with the stacks of a process that hung, None if it left none."""
        path = stacks.stack_file(self._directory, self.plan.kind, number)
        return path if path.exists() and path.stat().st_size else None

    def tail(self, number: int | None) -> list[str]:
        """Return the last lines of a process's log, or where it hung; of two processes', or else
        the starter's, if it is None.
        """
        if number is not None:
            return self._own_lines(number)[-_TAIL_LINES:]
        lines = []
        for each in sorted(self.journals)[:2]:
            share = self._own_lines(each)[-_TAIL_LINES // 2 :]
            lines += [f"[{self.plan.names.one} {each}] {line}" for line in share]
        log = self.plan.log
        return lines or (last_lines(log, _TAIL_LINES) if log.exists() else [])

    def _own_lines(self, number: int) -> list[str]:
        if stack := self.stack_of(number):
            return hang.main_stack(last_lines(stack, _STACK_LINES))
        log = self.log_of(number)
        return last_lines(log, _TAIL_LINES) if log else []


def last_lines(path: Path, count: int, most_bytes: int = 64 * 1024) -> list[str]:
    """Return the last `count` lines of `path`, of its last `most_bytes`."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most_bytes))
        return file.read().decode(errors="replace").splitlines()[-count:]
