"""What the smoke test writes down, as types: the host writes them, the controller reads them.

The controller takes nothing that does not fit (`pyinfra_gpu.facts.verdict`): these are plain
dataclasses for both, with what pydantic is to make of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

Mode = Literal["gpu", "rehearsal-1gpu", "rehearsal-cpu"]
Status = Literal["pass", "warn", "fail", "unknown"]
CheckStatus = Literal["pass", "warn", "fail", "skip", "unknown"]
Number = float | Literal["nan", "inf", "-inf"]
"""JSON has no words for the three."""
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
class Check(Part):
    """One check; `detail` is one sentence, on a failure what is wrong and where.

    + seconds: None where nothing was measured
    """

    id: str
    status: CheckStatus
    seconds: float | None
    detail: str


@dataclass(frozen=True)
class Stage(Part):
    """One stage; its status is its worst check's.

    + seconds: None if it was not reached
    """

    id: str
    status: CheckStatus
    seconds: float | None


@dataclass(frozen=True)
class Software(Part):
    """Which program, Python, torch and kernel the verdict is about; None: no torch was found."""

    smoke_test_sha256: str
    python: str
    python_path: str
    torch: str | None
    torch_path: str | None
    kernel: str
    boot_id: str


@dataclass(frozen=True)
class Environment(Part):
    """Variables of the caller that were not passed on to the ranks, with their values."""

    removed: Mapping[str, str]


@dataclass(frozen=True)
class Listens(Part):
    """Who could connect to what the test listened at, as it found out by trying: its own processes,
    the hosts of the step, or whoever reaches this machine.

    + how: by what others were kept out, or why they were not
    """

    to: Literal["itself", "group", "anyone"]
    how: str


@dataclass(frozen=True)
class Pcie(Part):
    """A GPU's link under load, None if it was not seen under load; and at best."""

    gen_loaded: int | None
    width_loaded: int | None
    gen_max: int | None
    width_max: int | None


@dataclass(frozen=True)
class Gpu(Part):
    """One GPU, as nvidia-smi lists it."""

    index: int
    uuid: str | None
    name: str
    pci: str | None
    driver: str | None
    cc: tuple[int, ...] | None
    memory_mib: int | None
    power_limit_w: float | None
    pcie: Pcie
    throttle: tuple[str, ...]


@dataclass(frozen=True)
class Rank(Part):
    """What became of one rank.

    + exit: None if not known, or ended by a signal; log: the file with what it printed
    """

    rank: int
    pid: int
    exit: int | None
    signal: int | None
    finished: bool
    last_step: str
    log: str | None


@dataclass(frozen=True)
class RankAcross(Part):
    """One rank of a step across hosts."""

    rank: int
    host: str
    pid: int
    finished: bool
    last_step: str


@dataclass(frozen=True)
class AllReduce(Part):
    """How fast all ranks reduced so many bytes: the best repeat, as slow as its slowest rank."""

    kind: Literal["float32", "bfloat16"]
    bytes: int
    seconds: float
    mb_per_s: float

    def __post_init__(self) -> None:
        """Refuse what is no rate."""
        if min(self.bytes, self.seconds, self.mb_per_s) < 0:
            raise ValueError("a rate below nothing")


@dataclass(frozen=True)
class Link(Part):
    """A GPU's PCIe link while the all-reduce ran, None where the driver does not tell."""

    gen: int | None
    width: int | None
    samples: int = 0
    sm_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    gb_s: float | None = None


@dataclass(frozen=True)
class Format(Part):
    """Whether a number format works here."""

    status: str
    reason: str = ""
    tflops: float | None = None


@dataclass(frozen=True)
class Metrics(Part):
    """The figures, as far as the run has come; those of GPUs by index.

    + seconds: by step, of the slowest rank; transport: NCCL's channels by the way of their data
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    loss0: Number | None = None
    loss1: Number | None = None
    taylor_ratio: Number | None = None
    bf16_tflops: Mapping[str, float] = field(default_factory=dict)
    memory_gb_s: Mapping[str, float] = field(default_factory=dict)
    allreduce_busbw_gb_s: Number | None = None
    allreduce_bytes: int | None = None
    host_copy_gb_s: Number | None = None
    link: Mapping[str, Link] = field(default_factory=dict)
    transport: Mapping[str, int] = field(default_factory=dict)
    nccl: tuple[str, ...] = ()
    precision: Mapping[str, Format] = field(default_factory=dict)
    precision_best: str | None = None
    allreduce: tuple[AllReduce, ...] = ()


@dataclass(frozen=True)
class Failed(Part):
    """The first check that failed.

    + rank: the rank to look at, None if not one in particular; tail: its log's last lines
    """

    id: str
    sentence: str
    rank: int | None
    log: str | None
    tail: tuple[str, ...]


@dataclass(frozen=True)
class FailedAcross(Failed):
    """The same of a step across hosts; `log` is on `host`, the one to look at, if one alone."""

    host: str | None


@dataclass(frozen=True)
class Rerun(Part):
    """A try after a hang; "not reached": no rank came to an all-reduce, so it tells nothing."""

    name: str
    result: Literal["passed", "hung", "not reached"]
    seconds: float


@dataclass(frozen=True)
class Member(Part):
    """A host of a step across hosts, and what its own test had passed with."""

    ranks: int
    fingerprint: str


@dataclass(frozen=True)
class Tested(Part):
    """What a verdict on one host and one on a step across hosts have in common.

    + label: the mode in words; proof: whether this run proves that a GPU host works
    + status: the worst of any check's; unknown if the test was interrupted
    + logs: the folder with torchrun's log, the ranks' journals and logs
    """

    schema_version: int
    mode: Mode
    label: str
    status: Status
    proof: bool
    host: str
    started: str
    finished: str
    duration_s: float
    deadline_s: int
    checks: tuple[Check, ...]
    metrics: Metrics
    logs: str

    @property
    def passed(self) -> bool:
        """Whether the test passed, with or without warnings."""
        return self.status in PASSED

    def check(self, check_id: str) -> Check | None:
        """Return the check of this id, None where there is none."""
        return next((each for each in self.checks if each.id == check_id), None)

    def having(self, *statuses: CheckStatus) -> tuple[Check, ...]:
        """Return the checks that ended so, in the verdict's order."""
        return tuple(each for each in self.checks if each.status in statuses)

    def agree(self, failed: object, version: int) -> None:
        """Raise ValueError where the parts contradict each other."""
        if self.schema_version != version:
            raise ValueError(f"its schema version is not {version}")
        if not self.checks or (failed is None) is not self.passed:
            raise ValueError("status and failed contradict each other")
        if self.proof and self.mode != "gpu":
            raise ValueError("a rehearsal is no proof")


@dataclass(frozen=True)
class Verdict(Tested):
    """The verdict of the smoke test on one host.

    + fingerprint: what the result depends on, as the caller gave it; None for a test by hand
    + reruns: what was tried after a hang; the first that passes names the layer
    + evidence: the file with the ends of all logs, those of the rank that failed first foremost;
      None on a pass, or where it could not be written
    + rerun_command: runs this test again by hand, on the host
    """

    VERSION: ClassVar[int] = 3
    fingerprint: str | None
    stages: tuple[Stage, ...]
    software: Software
    environment: Environment
    listens: Listens
    gpus: tuple[Gpu, ...]
    ranks: tuple[Rank, ...]
    failed: Failed | None
    reruns: tuple[Rerun, ...]
    evidence: str | None
    rerun_command: str

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        self.agree(self.failed, self.VERSION)
        if self.mode == "rehearsal-cpu" and self.gpus:
            raise ValueError("a test on the CPU lists GPUs")


@dataclass(frozen=True)
class AcrossVerdict(Tested):
    """The verdict on a step across hosts, as the controller judged it.

    + hosts: all of the step, ranks meet at the first; listens: of the hosts that told
    """

    VERSION: ClassVar[int] = 2
    hosts: Mapping[str, Member]
    run_id: str
    listens: Mapping[str, Listens]
    ranks: tuple[RankAcross, ...]
    failed: FailedAcross | None

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        self.agree(self.failed, self.VERSION)


@dataclass(frozen=True)
class AcrossStamp(Part):
    """What a host's stamp says of a step across hosts that passed.

    + hosts: host -> what its own test had passed with
    + open_to_others: host -> why others than the hosts of the step could connect
    """

    hosts: Mapping[str, str]
    ranks: int
    all_reduce: AllReduce | None
    taylor_ratio: Number | None
    mode: Mode
    finished: str
    duration_s: float
    proof: bool
    open_to_others: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stamp(Part):
    """The stamp of the last pass: what it stands for, and with whom one step was trained.

    + verdict: SHA-256 of the verdict's text
    """

    fingerprint: str | None
    status: Status
    mode: Mode
    finished: str
    verdict: str | None = None
    across: AcrossStamp | None = None

    @property
    def passed(self) -> bool:
        """Whether it is the stamp of a pass, with or without warnings."""
        return self.status in PASSED
