"""What a host's launcher says of its runs, as a type; what is no such thing never gets further."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pyinfra_gpu.facts import document
from pyinfra_gpu.facts.document import LARGEST
from pyinfra_gpu.facts.fields import Unknown

SCHEMA_VERSION = 1
LIMIT = 2 << 20
"""Bytes of a host's answer; a run comes to some thousand."""

Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,80}$")]
Word = Annotated[str, Field(pattern=r"^[a-z ]{1,20}$")]
Words = Annotated[str, Field(max_length=200)]
Text = Annotated[str, Field(max_length=8192)]


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


class Run(_Told):
    """One run, as its launcher judges it.

    + outcome: the word for what it does, or became; + wrong: whether somebody should look at it
    + losses: the curve as few points, where the launcher was asked for it
    + unresolved: whether it failed of late, and nobody has taken it up again
    """

    run: Name
    state: Word
    outcome: Word
    wrong: bool = False
    preset: Words | None = None
    created: Words = ""
    gpus: Annotated[tuple[Words, ...], Field(max_length=64)] = ()
    last: Step | None = None
    stalled_seconds: Number | None = None
    losses: Annotated[tuple[Number, ...], Field(max_length=512)] = ()
    unresolved: bool = False

    @property
    def on(self) -> bool:
        return self.state not in ("ended", "damaged")


class Runs(_Told):
    """What `list --json` prints."""

    version: Literal[1] = Field(alias="schema")
    runs: Annotated[tuple[Run, ...], Field(max_length=1000)]


class Why(_Told):
    """Why a run failed: `text` is what the launcher shows on its host; the rest is passed on."""

    model_config = ConfigDict(extra="allow")

    run: Name
    what: Text
    outcome: Words = ""
    across: Annotated[tuple[Text, ...], Field(max_length=64)] | None = None
    ended: Number | None = None
    text: Text = ""


def read(form: type[Runs] | type[Why], text: str) -> Runs | Why | Unknown:
    """Return what a host said as JSON."""
    return document.read(form, text, limit=LIMIT) or Unknown("it said nothing")


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRuns:
    """What one host said.

    + reason: why it could not be asked, or its answer not be read
    + lines: what its launcher printed; + ok: whether that did what was asked
    + absent: no training is declared there, or nothing is installed
    + without: it has no run such as was asked for, which is no failure where another host has
    """

    name: str
    runs: tuple[Run, ...] = ()
    reason: str | None = None
    lines: tuple[str, ...] = ()
    ok: bool = True
    absent: bool = False
    without: bool = False
    explained: Why | None = None

    @property
    def shown(self) -> tuple[Run, ...]:
        """The runs that are on, and the newest one."""
        return (*(run for run in self.runs[:-1] if run.on), *self.runs[-1:])

    @property
    def exit_code(self) -> int:
        if self.reason is not None or not self.ok:
            return 1
        seen = (*self.shown, *(run for run in self.runs if run.unresolved))
        return 2 if any(run.wrong for run in seen) else 0

    def as_json(self) -> dict[str, Any]:
        explained = self.explained.model_dump(mode="json") if self.explained else None
        plain = {name: getattr(self, name) for name in ("reason", "ok", "without", "lines")}
        runs = [run.model_dump(mode="json") for run in self.runs]
        return {**plain, "runs": runs, "explained": explained}


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainAnswer:
    """What all hosts said; + reasons: what is wrong with the request itself."""

    inventory: str
    hosts: tuple[HostRuns, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        codes = {host.exit_code for host in self.hosts if not host.without} or {1}
        return 1 if self.reasons or 1 in codes else max(codes)

    def as_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "inventory": self.inventory,
            "exit_code": self.exit_code,
            "reasons": self.reasons,
            "hosts": {host.name: host.as_json() for host in self.hosts},
        }
