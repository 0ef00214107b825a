"""The checks of one run, decided one by one as the participants' facts come in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..journal import Journal
from .check import Check, Expected, Facts, Finding
from .failure import Failure
from .verdict import CheckResult

_LAST = "S5"
"""The stage that looks back, whatever came before."""
_OUTRANKS = {("fail", "pass"), ("unknown", "pass"), ("fail", "unknown")}


class Decisions:
    """Keeps the results in the order of `checks`, all of the run; `tell` gets each new one."""

    def __init__(
        self,
        checks: Sequence[Check],
        expected: Expected,
        tell: Callable[[CheckResult], None],
    ) -> None:
        self.expected = expected
        self._order = [check.id for check in checks]
        self._tell = tell
        self._results: dict[str, CheckResult] = {}
        self.failed: str | None = None
        self.failed_rank: int | None = None

    @property
    def stopped(self) -> bool:
        """Return whether a check failed, or could not be decided, so that no stage may follow."""
        return self.failed is not None

    def decide(
        self, checks: Sequence[Check], facts: Mapping[str, object], seconds: float = 0.0
    ) -> None:
        """Decide those of `checks` whose needs are among the launcher's own `facts`, which took it
        `seconds` to find.
        """
        took = dict.fromkeys(facts, round(seconds, 4))
        self.update(checks, {0: Journal(0, facts=dict(facts), seconds=took)}, 1)

    def update(self, checks: Sequence[Check], journals: Mapping[int, Journal], count: int) -> None:
        """Decide those of `checks` whose facts are there from all `count` participants.

        Those behind a gate that is closed are left alone, whatever a process that was still at
        work when it closed goes on to write down.
        """
        for check in self.undecided(checks):
            if self._behind_a_gate(check):
                continue
            ready = _ready(check, journals)
            if len(ready) >= count:
                self._take(check, check.decide(_facts(ready), self.expected), ready)

    def blame(self, checks: Sequence[Check], journals: Mapping[int, Journal]) -> None:
        """Decide what failed on the facts of the ranks that have some, though others have none.

        For the end of a run: a rank that saw wrong data says more than its peer's lost connection.
        """
        for check in self.undecided(checks):
            ready = _ready(check, journals)
            if check.each and ready:
                found = check.decide(_facts(ready), self.expected)
                if not found.ok:
                    self._take(check, found, ready)

    def _behind_a_gate(self, check: Check) -> bool:
        stage = check.id.partition(".")[0]
        return self.failed is not None and self.failed.partition(".")[0] < stage < _LAST

    def undecided(self, checks: Sequence[Check]) -> list[Check]:
        """Return those of `checks` that have no result."""
        return [check for check in checks if check.id not in self._results]

    def _take(self, check: Check, found: Finding, ready: list[Journal]) -> None:
        status = found.status or ("pass" if found.ok else "fail")
        seconds = max(journal.seconds[check.needs[-1]] for journal in ready)
        measured, expected = found.measured, found.expected
        result = CheckResult(check.id, status, measured, expected, seconds, found.detail)
        self._add(result, found.rank)

    def _add(self, result: CheckResult, rank: int | None) -> None:
        """Take a result; the first failure is the run's, or else the first that is unknown."""
        before = self._results[self.failed].status if self.failed is not None else "pass"
        self._results[result.id] = result
        if (result.status, before) in _OUTRANKS:
            self.failed, self.failed_rank = result.id, rank
        self._tell(result)

    def close(self, checks: Sequence[Check], failure: Failure, status: str = "fail") -> None:
        """Give the first undecided of `checks` the blame for `failure`, if nothing else has it."""
        undecided = self.undecided(checks)
        if undecided and not self.stopped:
            self._add(CheckResult(undecided[0].id, status, detail=failure.sentence), failure.rank)

    def skip(self, checks: Sequence[Check]) -> None:
        """Say of the undecided of `checks` that they were not reached."""
        for check in self.undecided(checks):
            detail = f"not reached, {self.failed} failed" if self.stopped else "not reached"
            self._results[check.id] = CheckResult(check.id, "skip", detail=detail)

    def status(self, check_id: str) -> str | None:
        """Return the status of a check, None as long as it has none."""
        found = self._results.get(check_id)
        return found.status if found else None

    def results(self) -> list[CheckResult]:
        """Return all results, in the order in which they matter."""
        return sorted(self._results.values(), key=lambda result: self._order.index(result.id))


def _ready(check: Check, journals: Mapping[int, Journal]) -> list[Journal]:
    """Return the journals that hold all facts `check` needs, in the order of the participants."""
    known = [journals[number] for number in sorted(journals)]
    return [journal for journal in known if all(need in journal.facts for need in check.needs)]


def _facts(journals: list[Journal]) -> Facts:
    return {journal.rank: journal.facts for journal in journals}
