"""What a check is, and the board on which the checks of one run are decided, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from .document import CheckStatus, Result, Status
from .journal import Journal
from .options import REHEARSAL_CPU

Facts = Mapping[int, Mapping[str, Any]]
"""Participant -> name of the fact -> value, in the participants' order."""
TORCHRUN = "torchrun"
"""What `Check.by` says of facts that torchrun itself records, before it starts any rank."""


class Judged(Exception):  # noqa: N818 - a warning is none
    """How a check ends that does not pass: fail, warn, skip or unknown, and why."""

    def __init__(self, status: CheckStatus, detail: str, rank: int | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.rank = status, detail, rank


def fail(detail: str, rank: int | None = None) -> NoReturn:
    """End a check: it failed. `rank` is the rank to look at, None if not one in particular."""
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
class Want:
    """What the launcher knows before any rank runs.

    + torch_path: where torch is to be imported from; gpus: how many the caller declares
    + gpu_host: what is known of the GPUs before torch is imported; kinds: what sound ones show
    + compile: whether programs on this host are meant to use torch.compile
    + hosts: of a step across hosts: host -> the number of its ranks
    """

    ranks: int
    allreduce_mib: int
    mode: str = REHEARSAL_CPU
    torch_path: str = ""
    gpus: int = 0
    gpu_host: Mapping[str, Any] = field(default_factory=dict)
    kinds: Sequence[Mapping[str, Any]] = ()
    compile: bool = True
    hosts: Mapping[str, int] = field(default_factory=dict)

    @property
    def on_cpu(self) -> bool:
        """Whether no GPU is used."""
        return self.mode == REHEARSAL_CPU


@dataclass(frozen=True)
class Check:
    """A check that can be decided as soon as every participant has recorded the facts it needs.

    The participants of S1 to S4 are the ranks, or torchrun as number 0; of S0 and S5 the launcher
    alone, as number 0.

    + judge: returns what is to be said of a check that passes; else it raises `Judged`
    + each: whether a failure shows on one participant's facts, when the others have none
    + by: the measurement that ranks make for it, see `worker`; TORCHRUN; None: the launcher's own
      facts, or those that ranks record anyway
    + across: whether the multi-node step asks for it too
    """

    id: str
    needs: tuple[str, ...]
    judge: Callable[[Facts, Want], str]
    each: bool = False
    by: str | None = None
    across: bool = False


def status_of(results: Iterable[Result]) -> Status:
    """Return the worst status, and unknown if nothing was checked."""
    found = {result.status for result in results}
    worst_first: tuple[Status, ...] = ("fail", "unknown", "warn", "pass")
    return next((each for each in worst_first if each in found), "unknown")


class Board:
    """The results of one run, in the order of `checks`; `tell` gets each new one."""

    def __init__(
        self,
        checks: Sequence[Check],
        want: Want,
        tell: Callable[[Result], object] = lambda _: None,
    ) -> None:
        self.checks, self.want = checks, want
        self._tell = tell
        self._found: dict[str, Result] = {}
        self.failed: Result | None = None

    def decide(
        self, checks: Iterable[Check], facts: Mapping[str, Any], seconds: float = 0.0
    ) -> None:
        """Decide those of `checks` whose needs are among the launcher's own `facts`."""
        took = dict.fromkeys(facts, round(seconds, 4))
        self.update(checks, {0: Journal(0, facts=dict(facts), seconds=took)}, 1)

    def update(
        self,
        checks: Iterable[Check],
        journals: Mapping[int, Journal],
        count: int,
        *,
        ended: bool = False,
    ) -> None:
        """Decide those of `checks` whose facts are there from all `count` participants.

        + ended: the run is over: then also what fails on the facts of some of them. A rank that
          saw wrong data says more than its peer's lost connection.

        Nothing of a later stage is decided once a check has failed, except what looks back (S5).
        """
        for check in self.undecided(checks):
            if self.failed and self.failed.id[:2] < check.id[:2] < "S5":
                continue
            ready = {n: each for n, each in sorted(journals.items()) if each.has(check.needs)}
            complete = len(ready) >= count
            if complete or (ended and check.each and ready):
                result = self._judged(check, ready)
                if complete or result.status == "fail":
                    self._take(result)

    def _judged(self, check: Check, ready: Mapping[int, Journal]) -> Result:
        seconds = max(journal.seconds[check.needs[-1]] for journal in ready.values())
        facts = {number: journal.facts for number, journal in ready.items()}
        try:
            return Result(check.id, "pass", seconds, check.judge(facts, self.want))
        except Judged as found:
            return Result(check.id, found.status, seconds, found.detail, found.rank)

    def _take(self, result: Result) -> None:
        """The first failure is the run's, or else the first that is unknown."""
        self._found[result.id] = result
        first = self.failed is None or (self.failed.status, result.status) == ("unknown", "fail")
        if result.status in ("fail", "unknown") and first:
            self.failed = result
        self._tell(result)

    def undecided(self, checks: Iterable[Check]) -> list[Check]:
        """Return those of `checks` that have no result."""
        return [check for check in checks if check.id not in self._found]

    def close(
        self, checks: Iterable[Check], detail: str, rank: int | None, status: CheckStatus = "fail"
    ) -> None:
        """Give the first undecided of `checks` the blame, if nothing else has it."""
        undecided = self.undecided(checks)
        if undecided and self.failed is None:
            self._take(Result(undecided[0].id, status, None, detail, rank))

    def results(self) -> list[Result]:
        """Return all results in the order of the checks; those not reached are skipped."""
        why = f"not reached, {self.failed.id} failed" if self.failed else "not reached"
        return [
            self._found.get(each.id) or Result(each.id, "skip", detail=why) for each in self.checks
        ]


def pairs(values: Mapping[str, Any]) -> str:
    """Return "key value, key value", for sentences."""
    return ", ".join(f"{key} {value}" for key, value in values.items())
