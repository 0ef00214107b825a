"""What the smoke test writes down, as types: the host writes them, the controller reads them.

The controller takes nothing that does not fit (`pyinfra_gpu.facts.verdict`): these are plain
dataclasses for both, with what pydantic is to make of them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

Mode = Literal["gpu", "rehearsal-1gpu", "rehearsal-cpu"]
Status = Literal["pass", "warn", "fail", "unknown"]
CheckStatus = Literal["pass", "warn", "fail", "skip", "unknown"]
VERSION = 7
EVIDENCE = "evidence.json"


class Part:
    """A part of a document: frozen, without keys that nobody knows."""

    __pydantic_config__: ClassVar[Any] = {"strict": True, "extra": "forbid"}

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))  # type: ignore[call-overload]
        return plain


@dataclass(frozen=True)
class Result(Part):
    """One check; `detail` is one sentence, on a failure what is wrong and where. `seconds` is None
    where nothing was measured, `rank` where no one rank is to be looked at.
    """

    id: str
    status: CheckStatus
    seconds: float | None = None
    detail: str = ""
    rank: int | None = None


@dataclass(frozen=True)
class AllReduce(Part):
    """How fast all ranks reduced so many bytes: the best repeat, by its slowest rank."""

    kind: Literal["float32", "bfloat16"]
    bytes: int
    seconds: float
    mb_per_s: float

    def __post_init__(self) -> None:
        """Refuse what is no rate."""
        if min(self.bytes, self.seconds, self.mb_per_s) < 0:
            raise ValueError("a rate below nothing")


@dataclass(frozen=True)
class Failed(Part):
    """The first check that failed; the rank, as far as one alone is to be looked at, and the last
    lines of its log (`tail`).
    """

    id: str
    sentence: str
    rank: int | None
    tail: tuple[str, ...]


@dataclass(frozen=True)
class Verdict(Part):
    """The verdict of the smoke test on one host, or of its part in a step of several hosts.

    + proof: whether this run proves that a GPU host works
    + fingerprint: what the result depends on, as the caller gave it; None for a test by hand
    + ranks: how many took part; hosts: those of a step of several, the first one served the store
    + gpus: their names; torch: its version, None where there is none
    + others_kept_out: whether nobody else could connect to what the test listened at, as it found
      out by trying
    + logs: a folder; where anything is wrong its `EVIDENCE` has the ends of all logs, those of the
      rank that failed first foremost
    + rerun_command: runs this test again by hand, on the host; empty for a step of several
    """

    schema_version: int
    mode: Mode
    status: Status
    proof: bool
    host: str
    finished: str
    duration_s: float
    ranks: int
    checks: tuple[Result, ...]
    allreduce: tuple[AllReduce, ...]
    failed: Failed | None
    logs: str
    fingerprint: str | None
    torch: str | None
    others_kept_out: bool
    gpus: tuple[str, ...]
    rerun_command: str
    hosts: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the test passed, with or without warnings: both leave a stamp."""
        return self.status in ("pass", "warn")

    def check(self, check_id: str) -> Result | None:
        """Return the check of this id, None where there is none."""
        return next((each for each in self.checks if each.id == check_id), None)

    def having(self, *statuses: CheckStatus) -> tuple[Result, ...]:
        """Return the checks that ended so, in the verdict's order."""
        return tuple(each for each in self.checks if each.status in statuses)

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if self.schema_version != VERSION:
            raise ValueError(f"its schema version is not {VERSION}")
        if not self.checks or (self.failed is None) is not self.passed:
            raise ValueError("status and failed contradict each other")
        if self.proof and self.mode != "gpu":
            raise ValueError("a rehearsal is no proof")
        if self.mode == "rehearsal-cpu" and self.gpus:
            raise ValueError("a test on the CPU lists GPUs")


@dataclass(frozen=True)
class Stamp(Part):
    """What root notes on a host whose test has passed; without one, none has.

    + verdict: SHA-256 of the verdict's text, by which one that somebody edited is known
    + across: the hosts that have trained one step together since; empty where none have
    + driver: the version of the module that was loaded
    """

    fingerprint: str
    mode: Mode
    verdict: str | None
    across: tuple[str, ...] = ()
    driver: str | None = None
