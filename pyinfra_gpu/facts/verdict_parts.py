"""The parts of what the smoke test writes: checks, ranks, GPUs, figures; checked on arrival."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from pyinfra_gpu.facts.document import LARGEST

Mode = Literal["gpu", "rehearsal-1gpu", "rehearsal-cpu"]
Status = Literal["pass", "warn", "fail", "unknown"]
CheckStatus = Literal["pass", "warn", "fail", "skip", "unknown"]

Integer = Annotated[int, Field(ge=-LARGEST, le=LARGEST)]
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Number = Finite | Literal["nan", "inf", "-inf"]
"""JSON has no words for the three; a figure that should be shown or drawn goes through `finite`."""
Words = Annotated[str, Field(min_length=1)]
Time = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Fingerprint = Annotated[str, Field(pattern="^[0-9a-f]+$")]


def _plain(value: object) -> object:
    """Refuse numbers that no reader could show or write again; the parser bounds the depth."""
    if isinstance(value, dict):
        _plain(list(value.values()))
    elif isinstance(value, list):
        for each in value:
            _plain(each)
    elif isinstance(value, int | float) and not -LARGEST <= value <= LARGEST:
        raise ValueError("holds a number that is not finite or too large")
    return value


Json = Annotated[object, AfterValidator(_plain)]
"""A value whose form depends on the check; it is kept and only shown whole."""


class Part(BaseModel):
    """A part of a document: frozen, without keys that nobody knows."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def as_json(self) -> dict[str, Any]:
        """Return it as it came, as plain data."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Open(Part):
    """A part that may have further keys, which are kept."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Json]


class Stage(Part):
    """One stage of the test; its status is its worst check's."""

    id: Literal["S0", "S1", "S2", "S3", "S4", "S5"]
    status: CheckStatus
    seconds: Seconds | None = Field(description="null if it was not reached.")
    deadline_s: Finite | None = Field(description="What it had, when it began.")


class Software(Part):
    """Which program, Python, torch and kernel the verdict is about."""

    smoke_test_sha256: Digest
    python: str
    python_path: str
    torch: str | None = Field(description="From torch/version.py, null if no torch was found.")
    torch_path: str | None
    kernel: str
    boot_id: str


class Environment(Part):
    """What the ranks were started with."""

    removed: dict[str, str] = Field(
        description="Variables of the caller that were not passed on to the ranks, with their"
        " values."
    )


class Pcie(BaseModel):
    """A GPU's link under load, null if it was not seen under load; and at best."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    __pydantic_extra__: dict[str, Integer | None]
    gen_loaded: Integer | None
    width_loaded: Integer | None
    gen_max: Integer | None
    width_max: Integer | None


class Gpu(Open):
    """One GPU, as nvidia-smi lists it."""

    index: Integer
    uuid: str | None
    name: str
    pci: str | None
    cc: tuple[Integer, ...] | None
    memory_mib: Integer | None
    pcie: Pcie
    throttle: tuple[str, ...]


class Xid(Open):
    """A GPU's error in the kernel's log."""

    kind: str
    number: Integer | None
    pci: str
    serious: bool
    text: str
    advice: str


class Check(Part):
    """One check."""

    id: str = Field(pattern=r"^S[0-9]\.[a-z0-9_]+$")
    status: CheckStatus
    seconds: Seconds | None = Field(description="null where nothing was measured.")
    detail: str = Field(description="One sentence; on a failure, what is wrong and where.")


class Store(Part):
    """The key-value store over which the ranks met."""

    kind: str = Field(alias="class")
    host: str | None
    port: Integer | None
    master_addr: str
    master_port: Integer
    agent_pid: Integer = Field(description="torchrun's process.")
    server_pid: Integer | None = Field(description="The process that listens on master_port.")
    server_threads: tuple[str, ...] = Field(
        description="Its store threads: pt_tcpstore_uv is libuv, pt_tcpstore is not."
    )


class Rank(Part):
    """One rank on this host."""

    rank: Count
    pid: Count
    exit: Integer | None = Field(description="Exit code, null if not known or ended by a signal.")
    signal: Annotated[int, Field(ge=1, le=LARGEST)] | None
    finished: bool = Field(description="Whether the rank did all its work.")
    last_step: str
    store: Store | None
    log: str | None = Field(description="What the rank printed, null if nothing.")


class RankAcross(Part):
    """One rank of a step across hosts."""

    rank: Count
    host: str
    pid: Count
    finished: bool
    last_step: str


class AllReduce(Part):
    """How fast all ranks reduced so many bytes."""

    kind: Literal["float32", "bfloat16"]
    bytes: Annotated[int, Field(ge=1, le=LARGEST)]
    seconds: Seconds = Field(description="Best of the repeats, as slow as its slowest rank.")
    mb_per_s: Seconds = Field(description="bytes / seconds / 10^6.")


class Link(Open):
    """A GPU's PCIe link while the all-reduce ran, null where the driver does not tell."""

    gen: Integer | None
    width: Integer | None


class Format(Open):
    """Whether a number format works here."""

    status: str


class Metrics(Part):
    """The figures, present as far as the run has come."""

    label: str = Field("", description="What the figures may be taken for.")
    seconds: dict[str, Seconds] = Field({}, description="Per stage, of the slowest rank.")
    init_s: Seconds | None = None
    loss0: Number | None = None
    loss1: Number | None = None
    loss_drop: Number | None = None
    loss_drop_predicted: Number | None = None
    taylor_ratio: Number | None = None
    lr: Number | None = None
    parameters: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    bf16_tflops: dict[str, Number] = Field({}, description="By GPU.")
    memory_gb_s: dict[str, Number] = Field({}, description="By GPU.")
    allreduce_busbw_gb_s: Number | None = None
    host_copy_gb_s: Number | None = Field(None, description="To the one GPU, by its PCIe link.")
    allreduce_bytes: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    link: dict[str, Link] = Field({}, description="By GPU.")
    transport: dict[str, Integer] = Field(
        {}, description="NCCL's channels by the way their data went, from its log."
    )
    nccl: tuple[str, ...] = Field((), description="NCCL's versions, from its log.")
    precision: dict[str, Format] = Field({}, description="By number format.")
    precision_best: str | None = None
    allreduce: tuple[AllReduce, ...] = ()


class Failed(Part):
    """The first check that failed."""

    id: str
    sentence: Words
    rank: Integer | None = Field(description="The rank to look at, null if not one in particular.")
    log: str | None
    tail: tuple[str, ...] = Field(max_length=30, description="The log's last lines.")


class FailedAcross(Failed):
    """The first check that failed in a step across hosts; `log` is on this host."""

    host: str | None = Field(description="The host to look at, null if not one in particular.")


class Rerun(Part):
    """A try after a hang."""

    name: str
    result: Literal["passed", "hung", "not reached"] = Field(
        description="not reached: no rank came to an all-reduce, so it tells nothing."
    )
    seconds: Seconds


class Listens(Part):
    """Who could connect to what the test listened at, as it found out by trying."""

    to: Literal["itself", "group", "anyone"] = Field(
        description="Its own processes alone; the hosts of the step; whoever reaches this machine."
    )
    how: Words = Field(description="By what others were kept out, or why they were not.")


class Member(Part):
    """A host of a step across hosts."""

    ranks: Annotated[int, Field(ge=1, le=LARGEST)]
    fingerprint: str = Field(description="What the host's own test passed with.")
