"""What hosts' launchers say of their runs: as types, which nothing else passes, and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import to_jsonable_python

from pyinfra_gpu.facts.document import LARGEST, Note
from pyinfra_gpu.on_host.terminal import table
from pyinfra_gpu.text import WIDTH, one_line

SCHEMA_VERSION = 1
LIMIT = 2 << 20
"""Bytes of a host's answer; a run comes to some thousand."""

Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,80}$")]
Word = Annotated[str, Field(pattern=r"^[a-z ]{1,20}$")]
Shown = Annotated[str, Field(max_length=8192), AfterValidator(one_line)]


class Run(Note):
    """One run, as its launcher judges it; the rest is passed on.

    + outcome: the word for what it does, or became; + wrong: whether somebody should look at it
    + words: what its last step says, to be shown
    + losses: the curve as few points, where the launcher was asked for it
    + unresolved: whether it failed of late, and nobody has taken it up again
    """

    model_config = ConfigDict(extra="allow")

    run: Name
    state: Word
    outcome: Word
    wrong: bool = False
    words: dict[Word, Shown] = Field(default_factory=dict)
    losses: Annotated[tuple[Number, ...], Field(max_length=512)] = ()
    unresolved: bool = False

    @property
    def on(self) -> bool:
        return self.state not in ("ended", "damaged")


class Runs(Note):
    """What `list --json` prints."""

    version: Literal[1] = Field(alias="schema")
    runs: Annotated[tuple[Run, ...], Field(max_length=1000)]


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRuns:
    """What one host said.

    + reason: why it could not be asked, or its answer not be read
    + lines: what its launcher printed; + ok: whether that did what was asked
    + absent: no training is declared there
    + part: what its launcher says to the controller alone
    """

    name: str
    runs: tuple[Run, ...] = ()
    reason: str | None = None
    lines: tuple[str, ...] = ()
    ok: bool = True
    absent: bool = False
    part: Mapping[str, Any] = field(default_factory=dict)

    @property
    def without(self) -> bool:
        """Whether it has no run such as was asked for: no failure where another host has."""
        return not self.ok and (self.absent or "no_run" in self.part)

    @property
    def shown(self) -> tuple[Run, ...]:
        """The runs that are on or nobody has looked at, and the newest one."""
        return (*(run for run in self.runs[:-1] if run.on or run.unresolved), *self.runs[-1:])

    @property
    def exit_code(self) -> int:
        if self.reason is not None or not self.ok:
            return 1
        return 2 if any(run.wrong for run in self.shown) else 0


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
            "hosts": {host.name: to_jsonable_python(host) for host in self.hosts},
        }


# -- as text


def render(answer: TrainAnswer, width: int = WIDTH) -> str:
    """Return what is on or failed of late, and each host's newest run."""
    rows: list[tuple[str, ...]] = []
    for host in answer.hosts:
        if not host.shown and host.reason is None:
            none = "no training declared" if host.absent else "none yet"
            rows.append((host.name, none, "", "", "", ""))
        for run in host.shown:
            words = (run.words.get(name, "") for name in ("step", "loss", "speed"))
            rows.append((host.name, run.run, run.outcome, *words))
    lines = [*table(("host", "run", "state", "step", "loss", "speed"), rows, width)]
    silent = [f"{host.name}: {host.reason}" for host in answer.hosts if host.reason is not None]
    lines += [f"! {text}" for text in (*silent, *answer.reasons)]
    on = sum(run.on for host in answer.hosts for run in host.runs)
    counts = f"{len(answer.hosts)} hosts" if len(answer.hosts) != 1 else "1 host"
    counts += f", {len(silent)} did not answer" if silent else ""
    counts += f"; {on} run{'s are' if on != 1 else ' is'} on"
    return "\n".join([*lines, *[""] * bool(lines), f"{counts}; exit code {answer.exit_code}"])


def told_of(run: Run) -> list[str]:
    """Return what the last step of a run says, in words."""
    return [f"{name} {words}" for name, words in run.words.items()]


def printed(answer: TrainAnswer) -> str:
    """Return what the launchers printed, the same answer of several hosts once."""
    blocks: dict[tuple[str, ...], list[str]] = {}
    named = len(answer.hosts) > 1 or any(not host.ok or host.reason for host in answer.hosts)
    for host in answer.hosts:
        said = (*host.lines, *([f"! {host.reason}"] if host.reason else []))
        blocks.setdefault(said, []).append(host.name)
    texts = [
        "\n".join([*([f"{', '.join(names)}:"] if named else []), *said])
        for said, names in blocks.items()
    ]
    return "\n\n".join([*texts, *(f"! {reason}" for reason in answer.reasons)])


def indented(line: str) -> str:
    """Return a line of a host's as text, with the blanks before it."""
    return " " * (len(line) - len(line.lstrip(" "))) + one_line(line)
