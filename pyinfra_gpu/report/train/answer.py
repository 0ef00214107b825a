"""What a host's launcher says of its runs, as a type; what is no such thing never gets further."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from pyinfra_gpu.facts import document
from pyinfra_gpu.facts.document import LARGEST
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.on_host.train.explanation import Explanation

SCHEMA_VERSION = 1
LIMIT = 2 << 20
"""Bytes of a host's list; a run comes to some thousand."""

MOST_RUNS = 1000

State = Literal["queued", "starting", "running", "waiting", "stopping", "ended", "damaged"]
Outcome = Literal["finished", "failed", "stopped", "lost"]
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,80}$")]
Words = Annotated[str, Field(max_length=200)]
Text = Annotated[str, Field(max_length=8192)]
Texts = Annotated[tuple[Text, ...], Field(max_length=64)]


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class Step(_Told):
    """The last step that the log told of."""

    step: Count | None = None
    steps: Count | None = None
    epoch: Count | None = None
    loss: Number | None = None
    not_finite: Literal["nan", "inf", "-inf"] | None = None
    tokens_per_second: Number | None = None
    mfu: Number | None = None


class Attempt(_Told):
    """One start of a run."""

    number: Count
    outcome: Outcome | None = None


class Run(_Told):
    """One run.

    + losses: the curve as few points, where the launcher was asked for it
    + unresolved: whether it failed of late, and nobody has taken it up again
    """

    run: Name
    state: State
    preset: Words | None = None
    created: Words = ""
    gpus: Annotated[tuple[Words, ...], Field(max_length=64)] = ()
    attempts: Annotated[tuple[Attempt, ...], Field(max_length=1000)] = ()
    last: Step | None = None
    stalled_seconds: Number | None = None
    losses: Annotated[tuple[Number, ...], Field(max_length=512)] = ()
    unresolved: bool = False

    @property
    def on(self) -> bool:
        """Whether it runs, or is to run."""
        return self.state not in ("ended", "damaged")

    @property
    def outcome(self) -> str:
        """What became of it in a word, or its state."""
        if self.stalled_seconds is not None and self.on:
            return "stalled"
        if self.on or self.state == "damaged":
            return self.state
        return (self.attempts[-1].outcome if self.attempts else None) or "not started"

    @property
    def wrong(self) -> bool:
        """Whether somebody should look at it."""
        spoilt = self.on and self.last is not None and self.last.not_finite is not None
        return spoilt or self.outcome in ("stalled", "failed", "lost", "damaged")


def _run_or_why(value: Any) -> Run | Unknown:
    """Read one run, or say why it is none: one odd record must not hide the others."""
    return document.read(Run, json.dumps(value), limit=LIMIT) or Unknown("it is empty")


class _List(_Told):
    version: Literal[1] = Field(alias="schema")
    runs: Annotated[
        tuple[Annotated[Run | Unknown, PlainValidator(_run_or_why)], ...],
        Field(max_length=MOST_RUNS),
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """What a launcher listed.

    + runs: those that could be read, oldest first
    + reason: why others could not, None where there are none
    """

    runs: tuple[Run, ...]
    reason: str | None = None


def read_runs(text: str) -> Listed | Unknown:
    """Return the runs that a launcher listed; never raises."""
    found = document.read(_List, text, limit=LIMIT)
    if found is None or isinstance(found, Unknown):
        return found or Unknown("it said nothing")
    odd = [each.reason for each in found.runs if isinstance(each, Unknown)]
    runs = tuple(run for run in found.runs if isinstance(run, Run))
    if not odd:
        return Listed(runs=runs)
    which = f"{len(odd)} of its {len(found.runs)} runs" if len(found.runs) > 1 else "its one run"
    return Listed(runs=runs, reason=f"{which} cannot be read: {odd[0]}")


class _Why(_Told):
    run: Name
    what: Text
    id: Words | None = None
    rank: int | None = None
    evidence: Texts = ()
    cause: Text | None = None
    fix: Texts = ()
    facts: Texts = ()
    passing: bool = False
    secondary: bool = False
    across: Texts = ()
    ended: Number | None = None
    stopped: bool = False
    more: Text = ""
    go_on: Text = ""


def read_explanation(text: str) -> Explanation | Unknown:
    """Return what a launcher knows of a run's end; never raises."""
    found = document.read(_Why, text, limit=LIMIT)
    if found is None or isinstance(found, Unknown):
        return found or Unknown("it said nothing")
    told = found.model_dump()
    return Explanation(**{**told, "id": found.id or "", "cause": found.cause or ""})


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRuns:
    """One host's answer.

    + reason: why there is none, or not all of it, one sentence
    + lines: what the launcher printed, where it was asked for something else than its runs
    + ok: whether the launcher did what it was told
    + absent: whether the host has no launcher; that is no mistake where none is declared
    + without: whether all that was refused is that there is no such run here
    + explained: why its run failed, where it was asked for that
    """

    name: str
    runs: tuple[Run, ...] = ()
    reason: str | None = None
    lines: tuple[str, ...] = ()
    ok: bool = True
    absent: bool = False
    without: bool = False
    explained: Explanation | None = None

    @property
    def exit_code(self) -> int:
        """0 well; 1 nothing could be told, or the launcher refused; 2 a run is wrong."""
        if self.reason is not None or not self.ok:
            return 1
        newest = self.runs[-1:]
        seen = (run for run in self.runs if run.on or run.unresolved)
        return 2 if any(run.wrong for run in (*newest, *seen)) else 0

    @property
    def failed_before(self) -> tuple[Run, ...]:
        """The failed runs that a newer one must not hide."""
        return tuple(run for run in self.runs[:-1] if run.unresolved)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "reason": self.reason,
            "ok": self.ok,
            "without": self.without,
            "runs": [run.model_dump(mode="json") | {"outcome": run.outcome} for run in self.runs],
            "lines": list(self.lines),
            "explained": self.explained.as_json() if self.explained else None,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainAnswer:
    """All hosts' answers, in the inventory's order; + reasons: what is wrong as a whole."""

    inventory: str
    hosts: tuple[HostRuns, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The worst: 1 something was refused or could not be told, 2 a run is wrong, 0 well.

        A host that has no such run does not count where another one has it.
        """
        asked = [host for host in self.hosts if not host.without] or self.hosts
        codes = {host.exit_code for host in asked}
        if self.reasons or not self.hosts or 1 in codes:
            return 1
        return 2 if 2 in codes else 0

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data; what is in it stays, new keys may come."""
        return {
            "schema_version": SCHEMA_VERSION,
            "inventory": self.inventory,
            "exit_code": self.exit_code,
            "reasons": list(self.reasons),
            "hosts": {host.name: host.as_json() for host in self.hosts},
        }
