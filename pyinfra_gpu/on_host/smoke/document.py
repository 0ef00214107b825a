"""What the smoke test writes down, as types: the host writes them, the controller reads them.

The controller takes nothing that does not fit (`pyinfra_gpu.facts.verdict`): these are plain
dataclasses for both, with what pydantic is to make of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

Mode = Literal["gpu", "rehearsal-1gpu", "rehearsal-cpu"]
Status = Literal["pass", "warn", "fail", "unknown"]
CheckStatus = Literal["pass", "warn", "fail", "skip", "unknown"]
Number = float | Literal["nan", "inf", "-inf"]
"""JSON has no words for the three."""
VERSION = 6
PASSED = ("pass", "warn")
"""A test that only warns has passed: its stamp counts, and its warnings are shown."""


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
class Software(Part):
    """Which Python, torch and kernel the verdict is about; None: no torch was found."""

    python: str
    torch: str | None
    torch_path: str | None
    kernel: str


@dataclass(frozen=True)
class Listens(Part):
    """Who could connect to what the test listened at, as it found out by trying; `how` says by
    what others were kept out, or why they were not.
    """

    to: Literal["itself", "group", "anyone"]
    how: str


@dataclass(frozen=True)
class Gpu(Part):
    """One GPU, as nvidia-smi lists it."""

    index: int
    uuid: str | None
    name: str
    driver: str | None
    memory_mib: int | None


@dataclass(frozen=True)
class Rank(Part):
    """What became of one rank; `log` is the file on its host with what it printed."""

    rank: int
    host: str
    finished: bool
    last_step: str
    log: str | None


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
class Metrics(Part):
    """What is drawn and compared, as far as the run has come: the decrease of the loss by that
    which the gradient predicts, and the all-reduces. All other figures are in the checks' words.
    """

    taylor_ratio: Number | None = None
    allreduce: tuple[AllReduce, ...] = ()


@dataclass(frozen=True)
class Failed(Part):
    """The first check that failed; rank, host, log and the log's last lines (`tail`) as far as one
    alone is to be looked at.
    """

    id: str
    sentence: str
    rank: int | None
    log: str | None
    tail: tuple[str, ...]
    host: str | None


@dataclass(frozen=True)
class Verdict(Part):
    """The verdict of the smoke test on one host, or of one step that several hosts took.

    + proof: whether this run proves that a GPU host works
    + fingerprint: what the result depends on, as the caller gave it; None for a test by hand
    + evidence: the file with the ends of all logs, those of the rank that failed first foremost;
      None on a pass, or where it could not be written
    + rerun_command: runs this test again by hand, on the host; empty for a step of several
    + hosts: those of a step of several, the first is the one at which they met
    """

    schema_version: int
    mode: Mode
    status: Status
    proof: bool
    host: str
    finished: str
    duration_s: float
    ranks: tuple[Rank, ...]
    checks: tuple[Result, ...]
    metrics: Metrics
    failed: Failed | None
    logs: str
    fingerprint: str | None
    software: Software
    listens: Listens
    gpus: tuple[Gpu, ...]
    evidence: str | None
    rerun_command: str
    hosts: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the test passed, with or without warnings."""
        return self.status in PASSED

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
class AcrossStamp(Part):
    """What a host's stamp says of a step across hosts that passed.

    + hosts: host -> what its own test had passed with
    """

    hosts: Mapping[str, str]
    mode: Mode


@dataclass(frozen=True)
class Stamp(Part):
    """The stamp of the last pass: what it stands for, and with whom one step was trained.

    + verdict: SHA-256 of the verdict's text
    + driver: the version that was loaded; it stays when the stamp is withdrawn
    """

    fingerprint: str | None
    status: Status
    mode: Mode
    finished: str
    verdict: str | None = None
    driver: str | None = None
    across: AcrossStamp | None = None

    @property
    def passed(self) -> bool:
        """Whether it is the stamp of a pass, with or without warnings."""
        return self.status in PASSED
