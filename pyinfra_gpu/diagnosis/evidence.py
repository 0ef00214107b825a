"""What a failed smoke test leaves, as something that the diagnosis reads. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from pyinfra_gpu.facts import document
from pyinfra_gpu.facts.document import LARGEST
from pyinfra_gpu.on_host.diagnosis.log import Source

if TYPE_CHECKING:
    from pyinfra_gpu.facts.verdict import AcrossVerdict, Verdict


EVIDENCE_LIMIT = 768 * 1024
"""Bytes of an evidence file; the test itself keeps its own below 512 KiB."""


class _Entry(BaseModel):
    """One log's end."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")
    source: str = ""
    rank: Annotated[int, Field(ge=-LARGEST, le=LARGEST)] | None = None
    text: str


def _or_nothing(value: Any, entry: ValidatorFunctionWrapHandler) -> _Entry | None:
    """Pass over an entry that is none: one odd log must not hide the others."""
    try:
        return cast(_Entry, entry(value))
    except ValidationError:
        return None


class _Evidence(RootModel[tuple[Annotated[_Entry | None, WrapValidator(_or_nothing)], ...]]):
    """The file that a failed test leaves: the ends of all logs, the first cause's first."""

    model_config = ConfigDict(frozen=True, strict=True)


def of_verdict(verdict: Verdict | AcrossVerdict) -> list[Source]:
    """Return the last lines that the verdict holds."""
    text = "\n".join(verdict.failed.tail) if verdict.failed else ""
    return [Source(text, verdict.failed.rank)] if verdict.failed and text.strip() else []


def of_file(text: str, *, ended: bool = False) -> list[Source]:
    """Read the evidence file; what is not as it should be, half a file for instance, is nothing.

    + ended: whether the test itself ended torchrun, whose own log is then left out
    """
    found = document.read(_Evidence, text, limit=EVIDENCE_LIMIT)
    return [
        Source(entry.text, entry.rank)
        for entry in (found.root if isinstance(found, _Evidence) else ())
        if entry is not None and not (ended and entry.source == "torchrun")
    ]
