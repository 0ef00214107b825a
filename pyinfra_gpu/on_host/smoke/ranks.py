"""One run of the ranks under torchrun: started, followed, ended; and what it left to read."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from . import environment, failure, processes
from .decisions import FINISHED, LEFTOVERS, Decisions
from .failure import Failure
from .journal import Journal, Reader
from .options import Options
from .supervise import Tree
from .verdict import CheckResult

_POLL = 0.05
_AFTER_FAILURE = 5.0
"""Seconds a run goes on after its first failed check: what follows often narrows the cause."""
_STACK_WAIT = 0.3
_EXIT_WAIT = 1.0
_TAIL_LINES = 30


class RankRun:
    """The ranks of one smoke test, their journals and logs below `directory`."""

    def __init__(self, options: Options, bundle: Path, directory: Path, began: float) -> None:
        self._options = options
        self._bundle = bundle
        self._began = began
        self.directory = directory
        self._reader = Reader(directory)
        self.exit_codes: dict[int, int] = {}

    @property
    def journals(self) -> dict[int, Journal]:
        """Return rank -> what is known of it."""
        return self._reader.journals

    def run(self, decisions: Decisions, interruption: Callable[[], str | None]) -> None:
        """Run the ranks to their end, or end them; every check is decided when this returns."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()
        clean = environment.for_cpu(os.environ)
        log = self.directory / "torchrun.log"
        tree = Tree(self._command(), clean, self.directory, log)
        try:
            reason = self._follow(tree, decisions, interruption)
            code = tree.code
            left = self._leftovers(tree) if code is not None else []
        finally:
            tree.end()
        self._reader.follow()
        decisions.update(self.journals)
        decisions.blame(self.journals)
        self.exit_codes = failure.exit_codes(log.read_text(errors="replace"))
        self._close(decisions, reason, code, left)

    def _command(self) -> list[str]:
        options = self._options
        torchrun = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", str(options.ranks), "--max-restarts", "0"),
            # The store's address would otherwise be the hostname, which need not resolve.
            *("--local-addr", "127.0.0.1"),
            *("--log-dir", str(self.directory / "logs"), "--redirects", "3"),
        ]
        worker = [
            *(str(self._bundle), "--worker", str(self.directory)),
            *("--launcher-pid", str(os.getpid()), "--ranks", str(options.ranks)),
            *("--deadline", str(options.deadline)),
            *("--allreduce-mib", str(options.allreduce_mib)),
        ]
        return torchrun + worker

    def _follow(
        self, tree: Tree, decisions: Decisions, interruption: Callable[[], str | None]
    ) -> str | None:
        """Follow until torchrun ends (None), or until there is a reason to end it, returned."""
        limit = self._began + self._options.deadline
        while tree.code is None:
            if self._reader.follow():
                decisions.update(self.journals)
            self._note_gone()
            if signal_name := interruption():
                return signal_name
            now = time.monotonic()
            if now > limit:
                self._ask_for_stacks()
                return "deadline"
            if decisions.failed is not None:
                limit = min(limit, now + _AFTER_FAILURE)
            time.sleep(_POLL)
        self._note_gone()
        return None

    def _note_gone(self) -> None:
        for journal in self.journals.values():
            if journal.gone is None and journal.pid and not processes.alive(journal.pid):
                journal.gone = time.monotonic()

    def _ask_for_stacks(self) -> None:
        """Have every rank print where it is (`worker` has registered the signal for it)."""
        for journal in self.journals.values():
            if journal.pid and journal.gone is None:
                os.kill(journal.pid, signal.SIGUSR1)
        time.sleep(_STACK_WAIT)

    def _leftovers(self, tree: Tree) -> list[int]:
        limit = time.monotonic() + _EXIT_WAIT
        while tree.left() and time.monotonic() < limit:
            time.sleep(_POLL)
        return tree.left()

    def _close(
        self, decisions: Decisions, reason: str | None, code: int | None, left: list[int]
    ) -> None:
        if reason is not None and reason != "deadline":
            decisions.close(Failure(f"the test was interrupted by {reason}", None), "unknown")
            return
        options = self._options
        if code is None:
            decisions.close(failure.at_deadline(self.journals, options.ranks, options.deadline))
            return
        done = all(journal.finished for journal in self.journals.values())
        if decisions.complete and done and code == 0:
            pids = [journal.pid for journal in self.journals.values()]
            decisions.add(CheckResult(FINISHED, "pass", pids, pids, detail="exit code 0"))
            decisions.add(self._left_result(left))
        log = (self.directory / "torchrun.log").read_text(errors="replace")
        decisions.close(failure.ended(self.journals, options.ranks, code, log))

    @staticmethod
    def _left_result(left: list[int]) -> CheckResult:
        if not left:
            return CheckResult(LEFTOVERS, "pass", [], [], detail="no process is left")
        names = ", ".join(map(str, left))
        detail = f"torchrun has ended and left processes {names}, which were then ended"
        return CheckResult(LEFTOVERS, "fail", left, [], detail=detail)

    def log_of(self, rank: int) -> Path | None:
        """Return the file with what `rank` printed, None if it never started."""
        for name in ("stderr.log", "stdout.log"):
            for path in sorted(self.directory.glob(f"logs/*/attempt_0/{rank}/{name}")):
                if path.stat().st_size:
                    return path
        return None

    def tail(self, rank: int | None) -> list[str]:
        """Return the last lines of the rank's log; of two ranks', or else torchrun's, if None."""
        if rank is not None:
            path = self.log_of(rank)
            return _last_lines(path, _TAIL_LINES) if path else []
        lines = []
        for number in sorted(self.journals)[:2]:
            path = self.log_of(number)
            share = _last_lines(path, _TAIL_LINES // 2) if path else []
            lines += [f"[rank {number}] {line}" for line in share]
        log = self.directory / "torchrun.log"
        return lines or (_last_lines(log, _TAIL_LINES) if log.exists() else [])


def _last_lines(path: Path, count: int) -> list[str]:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 64 * 1024))
        return file.read().decode(errors="replace").splitlines()[-count:]
