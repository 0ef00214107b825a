"""The checks of one run, decided one by one as the ranks' facts come in."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import judge
from .failure import Failure
from .journal import Journal
from .verdict import CheckResult

FINISHED = "S4.finished"
LEFTOVERS = "S5.leftovers"


class Decisions:
    """Keeps results in the order of `judge.CHECKS`; `tell` is called with each new one."""

    def __init__(self, expected: judge.Expected, tell: Callable[[CheckResult], None]) -> None:
        self._expected = expected
        self._tell = tell
        self._results: dict[str, CheckResult] = {}
        self.failed: str | None = None
        self.failed_rank: int | None = None

    def add(self, result: CheckResult, rank: int | None = None) -> None:
        """Take a result from elsewhere; the first failure is the run's failure."""
        self._results[result.id] = result
        if result.status in ("fail", "unknown") and self.failed is None:
            self.failed, self.failed_rank = result.id, rank
        self._tell(result)

    def update(self, journals: Mapping[int, Journal]) -> None:
        """Decide every check whose facts are there on all ranks."""
        for check in self._undecided():
            ready = _ready(check, journals, self._expected.ranks)
            if len(ready) == self._expected.ranks:
                self._take(check, check.decide(_facts(ready), self._expected), ready)

    def blame(self, journals: Mapping[int, Journal]) -> None:
        """Decide what failed on the facts of the ranks that have some, though others have none.

        For the end of a run: a rank that saw wrong data says more than its peer's lost connection.
        """
        for check in self._undecided():
            ready = _ready(check, journals, self._expected.ranks)
            if check.each and ready:
                found = check.decide(_facts(ready), self._expected)
                if not found.ok:
                    self._take(check, found, ready)

    def _undecided(self) -> list[judge.Check]:
        return [check for check in judge.CHECKS if check.id not in self._results]

    def _take(self, check: judge.Check, found: judge.Finding, ready: list[Journal]) -> None:
        status = "pass" if found.ok else "fail"
        seconds = max(journal.seconds[check.needs[-1]] for journal in ready)
        measured, expected = found.measured, found.expected
        result = CheckResult(check.id, status, measured, expected, seconds, found.detail)
        self.add(result, found.rank)

    @property
    def complete(self) -> bool:
        """Return whether every check on the ranks' facts is decided."""
        return not self._undecided()

    def close(self, failure: Failure | None, status: str = "fail") -> None:
        """Give the first undecided check the blame for `failure`; the others were not reached."""
        for check_id in (*(check.id for check in judge.CHECKS), FINISHED, LEFTOVERS):
            if check_id in self._results:
                continue
            if failure is not None and self.failed is None:
                self.add(CheckResult(check_id, status, detail=failure.sentence), failure.rank)
            else:
                detail = f"not reached, {self.failed} failed"
                self._results[check_id] = CheckResult(check_id, "skip", detail=detail)

    def results(self) -> list[CheckResult]:
        """Return all results, in the order in which they matter."""
        order = ["S1.torch", *(check.id for check in judge.CHECKS), FINISHED, LEFTOVERS]
        return sorted(self._results.values(), key=lambda result: order.index(result.id))


def _ready(check: judge.Check, journals: Mapping[int, Journal], ranks: int) -> list[Journal]:
    """Return the journals that hold all facts `check` needs, in the order of the ranks."""
    known = [journals[rank] for rank in range(ranks) if rank in journals]
    return [journal for journal in known if all(need in journal.facts for need in check.needs)]


def _facts(journals: list[Journal]) -> judge.Facts:
    return {journal.rank: journal.facts for journal in journals}
