"""What a failed smoke test leaves, as something that the diagnosis explains. Pure."""

from __future__ import annotations

from dataclasses import dataclass
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

from pyinfra_gpu.diagnosis.host_facts import facts_of
from pyinfra_gpu.diagnosis.matcher import diagnose
from pyinfra_gpu.facts import document
from pyinfra_gpu.facts.document import LARGEST
from pyinfra_gpu.on_host.diagnosis.log import Source
from pyinfra_gpu.on_host.diagnosis.matcher import Diagnosis, Finding

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
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


@dataclass(frozen=True)
class Explained:
    """A verdict, and what is known of why its test failed.

    + diagnosis: None where nothing failed, or where nobody asked
    """

    verdict: Verdict | AcrossVerdict
    diagnosis: Diagnosis | None = None

    @property
    def root(self) -> Finding | None:
        """The finding that explains the failure, None where nothing known does."""
        found = self.diagnosis.findings if self.diagnosis else ()
        return next((each for each in found if each.kind == "root"), None)

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as it came, a failed one with its `diagnosis`."""
        document = self.verdict.as_json()
        if self.diagnosis is None:
            return document
        return {**document, "diagnosis": self.diagnosis.as_json()}


def explained(verdict: Verdict | AcrossVerdict, record: Record, evidence: str = "") -> Explained:
    """Return a verdict, that of a failed test with what `pyinfra-gpu explain` says of it.

    + record: of the host, whose facts decide between two readings of a message
    + evidence: the file that the test left; without it, the lines in the verdict have to do
    """
    if verdict.passed:
        return Explained(verdict)
    sources = of_file(evidence, ended=ended_by_the_test(verdict)) or of_verdict(verdict)
    return Explained(verdict, diagnose(sources, facts_of(record)))


def ended_by_the_test(verdict: Verdict | AcrossVerdict) -> bool:
    """Tell whether the test itself ended its ranks: at a deadline, or for what it had measured.

    torchrun's log then ends with a signal that came from the test, and names no cause.
    """
    late = verdict.failed is not None and "(the deadline)" in verdict.failed.sentence
    return late or measured_by_the_test(verdict)


def measured_by_the_test(verdict: Verdict | AcrossVerdict) -> bool:
    """Tell whether what failed is a figure that the test measured, and not the end of a rank."""
    check = verdict.check(verdict.failed.id) if verdict.failed else None
    return check is not None and (check.measured is not None or check.expected is not None)


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
