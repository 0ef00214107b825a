"""What a check is, and how the checks of a run are decided from what was written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from .document import CheckStatus, Result
from .journal import Journal
from .options import Options

Fact = Mapping[str, Any]
"""What one process wrote down: name -> value."""
Facts = Mapping[int, Fact]
"""Rank -> what it wrote down, in the ranks' order; the host's own facts are number 0."""


class Judged(Exception):  # noqa: N818 - a warning is none
    """How a check ends that does not pass: fail, warn, skip or unknown, and why."""

    def __init__(self, status: CheckStatus, detail: str, rank: int | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.rank = status, detail, rank

    def of(self, check: Check, seconds: float | None = None) -> Result:
        """Return it as the result of a check."""
        return Result(check.id, self.status, seconds, self.detail, self.rank)


def fail(detail: str, rank: int | None = None) -> NoReturn:
    """End a check: it failed. `rank` is the rank to look at, if the check is not of one rank."""
    raise Judged("fail", detail, rank)


def warn(detail: str, rank: int | None = None) -> NoReturn:
    """End a check: training works, and somebody should look at this."""
    raise Judged("warn", detail, rank)


def skip(detail: str) -> NoReturn:
    """End a check: there is nothing to be judged here."""
    raise Judged("skip", detail)


def unknown(detail: str) -> NoReturn:
    """End a check: it could not be found out, and the test cannot go on."""
    raise Judged("unknown", detail)


@dataclass(frozen=True)
class Want(Options):
    """What is asked of a test, and what is known before any rank runs.

    + torch_path: where torch is to be imported from
    + gpu_host: what is known of the GPUs before torch is imported; kinds: what sound ones show
    """

    torch_path: str = ""
    gpu_host: Mapping[str, Any] = field(default_factory=dict)
    kinds: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Check:
    """A check, which can be decided as soon as the facts that it needs are there.

    + judge: takes the facts of one rank, and those of all; returns what is to be said of a check
      that passes, else raises `Judged`. Its sentences do not name that rank: `decide` does
    + needs: names of facts, separated by spaces
    + of_host: whether they are the host's (launcher and torchrun), and not those of the ranks
    + each: whether every rank is judged, or the first one for all
    + gpu: whether it is for GPUs alone; across: whether the multi-node step asks for it too
    """

    id: str
    judge: Callable[[Fact, Want, Facts], str]
    needs: str
    of_host: bool = False
    each: bool = True
    gpu: bool = False
    across: bool = False


Results = dict[str, Result]
"""Id of a check that is decided -> its result."""
_WORST: tuple[CheckStatus, ...] = ("fail", "unknown", "warn", "skip", "pass")


def decide(
    checks: Sequence[Check],
    want: Want,
    own: Journal,
    ranks: Mapping[int, Journal],
    end: Judged | None = None,
) -> Results:
    """Return the results of those of `checks` that can be decided.

    + own: the host's facts; ranks: rank -> its facts
    + end: how the ranks ended, None while they run. At the end also counts what fails on the facts
      of some ranks: one that saw wrong data says more than its peer's lost connection. If nothing
      failed, the end itself is the result of the first check that cannot be decided.

    Nothing of a later stage is decided once a check has failed, except what looks back (S5).
    """
    results: Results = {}
    for check in checks:
        failed = first_failed(results)
        if failed and failed.id[:2] < check.id[:2] < "S5":
            continue
        asked, count = ({0: own}, 1) if check.of_host else (ranks, want.ranks)
        needs = check.needs.split()
        ready = {n: each for n, each in sorted(asked.items()) if each.has(needs)}
        if len(ready) >= count or (end and check.each and ready):
            found = judged(check, want, {n: each.facts for n, each in ready.items()})
            if len(ready) >= count or found.status == "fail":
                seconds = max(each.seconds.get(needs[-1], 0.0) for each in ready.values())
                results[check.id] = found.of(check, seconds)
    undecided = [check for check in checks if check.id not in results]
    if end and end.status != "pass" and undecided and not first_failed(results):
        results[undecided[0].id] = end.of(undecided[0])
    return results


def judged(check: Check, want: Want, facts: Facts) -> Judged:
    """Return how a check ends: as for the rank of which the worst is to be said."""
    found = []
    for number in facts if check.each else [min(facts)]:
        try:
            found.append(Judged("pass", check.judge(facts[number], want, facts)))
        except Judged as one:
            of_rank = check.each and not check.of_host and one.status != "skip"
            who = f"{'GPU' if check.gpu else 'rank'} {number}: " if of_rank else ""
            rank = number if of_rank else one.rank
            found.append(Judged(one.status, f"{who}{one.detail}", rank))
    return min(found, key=lambda each: _WORST.index(each.status))


def first_failed(results: Results) -> Result | None:
    """Return the first failure, or else the first that is unknown; None where neither is."""
    wrong = [each for each in results.values() if each.status in ("fail", "unknown")]
    return min(wrong, key=lambda each: _WORST.index(each.status), default=None)


def complete(checks: Iterable[Check], results: Results) -> tuple[Result, ...]:
    """Return all results in the order of `checks`; those not reached are skipped."""
    failed = first_failed(results)
    why = f"not reached, {failed.id} failed" if failed else "not reached"
    return tuple(results.get(each.id) or Result(each.id, "skip", detail=why) for each in checks)
