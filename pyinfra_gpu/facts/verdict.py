"""What the smoke test writes on a host, as types: its verdict and the stamp of a pass.

A text comes from a host, so it is read once and strictly: what does not fit is `Unknown`.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from pyinfra_gpu.facts import document
from pyinfra_gpu.facts.document import LARGEST
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.verdict_parts import (
    AllReduce,
    Check,
    CheckStatus,
    Count,
    Environment,
    Failed,
    FailedAcross,
    Fingerprint,
    Gpu,
    Listens,
    Member,
    Metrics,
    Mode,
    Number,
    Part,
    Rank,
    RankAcross,
    Rerun,
    Seconds,
    Software,
    Stage,
    Status,
    Time,
    Words,
    Xid,
)

PASSED: tuple[Status, ...] = ("pass", "warn")
"""A test that only warns has passed: its stamp counts, and its warnings are shown."""

# Not Literal: that takes `true` for 1.
Version2 = Annotated[int, Field(ge=2, le=2)]
Version3 = Annotated[int, Field(ge=3, le=3)]


class _Document(Part):
    """What a verdict of one host's test and one of a step across hosts have in common."""

    mode: Mode = Field(
        description="How the test ran; rehearsal modes are never proof of a host with several GPUs."
    )
    label: Words = Field(description="The mode in words, to be shown with every result.")
    status: Status = Field(
        description="The worst status of any check; unknown if the test was interrupted."
    )
    proof: bool = Field(description="Whether this run proves that a GPU host works.")
    host: str = Field(description="Whose verdict this is.")
    started: Time
    finished: Time
    duration_s: Seconds
    checks: tuple[Check, ...] = Field(min_length=1)
    metrics: Metrics
    failed: Failed | None = Field(description="The first check that failed; null on a pass.")
    logs: str = Field(description="Directory with torchrun's log, the ranks' journals and logs.")

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if (self.failed is None) is not self.passed:
            raise ValueError("status and failed contradict each other")
        if self.proof and self.mode != "gpu":
            raise ValueError("a rehearsal is no proof")
        return self

    @classmethod
    def read(cls, text: str | Unknown | None) -> Self | Unknown | None:
        """Return what a host wrote; `Unknown` with the reason where it does not fit the schema.

        + text: the file's; `None` = there is none

        Never raises, whatever the text is: too long, too deep, cut off, not JSON.
        """
        return document.read(cls, text)

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


class Verdict(_Document):
    """Verdict of the smoke test, one document a run. Numbers that JSON cannot express are the
    strings nan, inf and -inf.
    """

    schema_version: Version3
    fingerprint: Fingerprint | None = Field(
        description="As given by the caller: what the result depends on; null for a test by hand."
    )
    deadline_s: Annotated[int, Field(ge=10, le=3600)]
    deadline_extra_s: Count = Field(description="Granted after a hang, to find its layer.")
    stages: tuple[Stage, ...] = Field(min_length=6, max_length=6)
    software: Software
    environment: Environment
    listens: Listens
    gpus: tuple[Gpu, ...] = Field(description="As seen by nvidia-smi; empty on a CPU.")
    ranks: tuple[Rank, ...]
    xids_new: tuple[Xid, ...] | None = Field(
        description="GPU errors in the kernel's log since the test began; null if it cannot be"
        " read."
    )
    reruns: tuple[Rerun, ...] = Field(
        description="What was tried after a hang, in this order; the first that passes names the"
        " layer."
    )
    evidence: str | None = Field(
        description="File with the ends of all logs, of the rank that failed first foremost; null"
        " on a pass, or if it could not be written."
    )
    rerun_command: Words = Field(description="Runs this test again by hand, on the host.")

    @model_validator(mode="after")
    def _without_gpus(self) -> Self:
        if self.mode == "rehearsal-cpu" and self.gpus:
            raise ValueError("a test on the CPU lists GPUs")
        return self


class AcrossVerdict(_Document):
    """The verdict of a step across hosts, as the controller judged it. Numbers that JSON cannot
    express are the strings nan, inf and -inf.
    """

    schema_version: Version2
    hosts: dict[str, Member] = Field(
        min_length=2, description="All hosts of the step; ranks meet at the first."
    )
    run_id: Words
    listens: dict[str, Listens] = Field(
        description="Host -> who could connect to it, of the hosts that told."
    )
    deadline_s: Annotated[int, Field(ge=1, le=LARGEST)]
    ranks: tuple[RankAcross, ...]
    failed: FailedAcross | None


class AcrossStamp(Part):
    """What a host's stamp says of a step across hosts that passed."""

    hosts: dict[str, str] = Field(description="Host -> what its own test had passed with.")
    ranks: Count
    all_reduce: AllReduce | None
    taylor_ratio: Number | None
    open_to_others: dict[str, str] = Field(
        default={}, description="Host -> why others than the hosts of the step could connect."
    )
    mode: Mode
    finished: Time
    duration_s: Seconds
    proof: bool


class Stamp(Part):
    """The stamp of the last pass: what it stands for, and with whom one step was trained."""

    fingerprint: str | None
    status: Status
    mode: Mode
    finished: Time
    verdict: str | None = Field(default=None, description="SHA-256 of the verdict's text.")
    across: AcrossStamp | None = None

    @classmethod
    def read(cls, text: str | Unknown | None) -> Self | Unknown | None:
        """Return what a host wrote; `Unknown` with the reason where it is no stamp."""
        return document.read(cls, text)

    @property
    def passed(self) -> bool:
        """Whether it is the stamp of a pass, with or without warnings."""
        return self.status in PASSED


AnyVerdict = Verdict | AcrossVerdict


def finite(value: float | str | None) -> float | None:
    """Return a figure that can be shown and drawn; None for nan, inf and what is not there."""
    return None if isinstance(value, str) else value
