"""A build of torch from source: how far it is, which wheel it left, and which is installed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from pyinfra_gpu.facts import document
from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact

_Text = Annotated[str, Field(max_length=2000)]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_File = Annotated[str, Field(pattern=r"^torch-[A-Za-z0-9_.+-]{1,150}\.whl$")]


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    @classmethod
    def read(cls, text: str | Unknown | None) -> Self | Unknown | None:
        """Return what a host wrote; `Unknown` with the reason where it is no such document."""
        return document.read(cls, text)

    def as_json(self) -> dict[str, Any]:
        """The document as plain JSON."""
        return self.model_dump(mode="json")


class BuildFailure(_Document):
    """Why a build stopped: a sentence, and the lines of its log, the first error first.

    + quoted: the line with which the sentence ends, where it quotes one; older programs do not say
    """

    sentence: _Text
    lines: list[_Text] = []
    quoted: _Text = ""


class BuildState(_Document):
    """How far a build is, as the program on the host keeps it in state.json.

    + fingerprint: of what is declared for it
    + percent: of the whole; never goes back
    + steps_done, total: of ninja's steps; left_s: seconds that compiling still takes, as it goes
    + memory_mib: that all of it takes now, files that are cached left out; None: not told
    + compiled: steps that ninja finished in all runs of this build
    + stand_in: the tree says of itself that it is a rehearsal's
    + alive: whether its process is there, where it is followed; the file does not say
    """

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="ignore",
        json_schema_extra={"$id": "urn:pyinfra-gpu:build-state:1"},
    )

    fingerprint: _Digest
    status: Literal["running", "done", "failed", "stopped"]
    phase: Literal["fetch", "requirements", "configure", "check", "compile", "wheel", "prove"]
    percent: Annotated[int, Field(ge=0, le=100)]
    steps_done: Annotated[int, Field(ge=0)]
    total: Annotated[int, Field(ge=0)]
    left_s: int | None
    memory_mib: Annotated[int, Field(ge=0)] | None = None
    jobs: Annotated[int, Field(ge=0)]
    compiled: Annotated[int, Field(ge=0)]
    boot_id: _Text
    started: _Text
    updated: _Text
    notes: list[_Text] = []
    stand_in: bool = False
    alive: bool = True
    error: BuildFailure | None = None

    def told(self) -> str:
        """Say how far it is, in one line."""
        # A build that goes on knows how many there are before ninja has said how many are left.
        counted = self.phase == "compile" and self.total > 0 and self.steps_done > 0
        steps = f" {self.steps_done} of {self.total}" if counted else ""
        left = _time_left(self.left_s) if self.phase == "compile" else ""
        memory = f", {self.memory_mib / 1024:.1f} GiB in use" if counted and self.memory_mib else ""
        return f"{self.phase}{steps}, {self.percent} %{memory}{left}"


class Manifest(_Document):
    """What a wheel is that was built and proven, as wheel.json beside it says.

    + ingredients: what its fingerprint is made of, by name
    + observed: what else went into it, and what it was built on
    """

    fingerprint: _Digest
    ingredients: dict[str, Any]
    file: _File
    sha256: _Digest
    size: Annotated[int, Field(ge=0)]
    built: _Text
    stand_in: bool
    observed: dict[str, Any]
    proven: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRecord(Jsonable):
    """What there is of builds on a host.

    + stamp: of the torch that is installed; wheel: of the wheel that lies there
    + cudnn: the version that the headers of the cuDNN say which a build would take; None where
      there are none, or where none is taken
    + state: of the last build; pid: of the process that builds now
    """

    stamp: Manifest | Unknown | None
    wheel: Manifest | Unknown | None
    state: BuildState | Unknown | None
    pid: str | Unknown | None
    cudnn: str | Unknown | None

    @property
    def running(self) -> BuildState | None:
        """The build that goes on, None where none does."""
        if isinstance(self.state, BuildState) and isinstance(self.pid, str):
            return self.state if self.state.status == "running" else None
        return None


class Build(ConcernFact[BuildRecord]):
    """Builds: `pyinfra INVENTORY fact pyinfra_gpu.facts.pytorch_build.Build`."""

    def read(self, answer: Answer) -> BuildRecord:
        """Only this concern of what a host answered."""
        return parse(answer)


def parse(answer: Answer) -> BuildRecord:
    """Return this concern, of what a host answered."""
    return answer.part(
        BuildRecord,
        "build",
        stamp=Manifest.read(answer.text("build.stamp")),
        wheel=Manifest.read(answer.text("build.wheel")),
        state=BuildState.read(answer.text("build.state")),
    )


def _time_left(seconds: int | None) -> str:
    if seconds is None:
        return ""
    if seconds < 90:
        return f", about {max(seconds, 1)} s left"
    return f", about {round(seconds / 60)} min left"
