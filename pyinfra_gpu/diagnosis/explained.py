"""A smoke test's verdict, and why the test failed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from pyinfra_gpu.facts import document

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.facts.verdict import AcrossVerdict, Verdict
    from pyinfra_gpu.on_host.diagnosis.explain import Answer, Found

EVIDENCE_LIMIT = 768 * 1024
"""Bytes of an evidence file; the test itself keeps its own below 512 KiB."""


@dataclass(frozen=True)
class Explained:
    """A verdict, and what is known of why its test failed.

    + diagnosis: None where nothing failed, or where nobody asked
    """

    verdict: Verdict | AcrossVerdict
    diagnosis: Answer | None = None

    @property
    def root(self) -> Found | None:
        """The root cause, None where nothing known explains the failure."""
        return next(iter(self.diagnosis.found), None) if self.diagnosis else None

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as it came, a failed one with its `diagnosis`."""
        known = {"diagnosis": self.diagnosis.as_json()} if self.diagnosis else {}
        return {**self.verdict.as_json(), **known}


def explained(verdict: Verdict | AcrossVerdict, record: Record, evidence: str = "") -> Explained:
    """Return a verdict, that of a failed test with what `pyinfra-gpu explain` says of it.

    + record: of the host, which decides between two readings of a message
    + evidence: the file that the test left; without it, the lines in the verdict have to do

    What reads logs is imported where a test has failed: a run with nothing to do is quicker so.
    """
    if verdict.passed:
        return Explained(verdict)
    from pyinfra_gpu.diagnosis.catalogue import catalogue
    from pyinfra_gpu.diagnosis.host_facts import facts_of
    from pyinfra_gpu.on_host.diagnosis.explain import explain

    texts = of_file(evidence, ended=ended_by_the_test(verdict)) or of_verdict(verdict)
    return Explained(verdict, explain(texts, catalogue(), facts_of(record)))


def ended_by_the_test(verdict: Verdict | AcrossVerdict) -> bool:
    """Tell whether the test itself ended its ranks: at a deadline, or for what it had measured.

    torchrun's log then ends with a signal that came from the test, and names no cause.
    """
    late = verdict.failed is not None and "(the deadline)" in verdict.failed.sentence
    return late or measured_by_the_test(verdict)


def measured_by_the_test(verdict: Verdict | AcrossVerdict) -> bool:
    """Tell whether what failed is a figure that the test measured, and not the end of a rank."""
    check = verdict.check(verdict.failed.id) if verdict.failed else None
    return check is not None and check.seconds is not None


class _Entry(BaseModel):
    """The end of one log."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")
    source: str = ""
    rank: Annotated[int, Field(ge=0, le=document.LARGEST)] | None = None
    text: str


class _Evidence(RootModel[tuple[Any, ...]]):
    """The file that a failed test leaves: entries, the first cause's first."""


def of_verdict(verdict: Verdict | AcrossVerdict) -> dict[str, str]:
    """Return the last lines that the verdict holds, by where they are from."""
    if verdict.failed is None or not (text := "\n".join(verdict.failed.tail)).strip():
        return {}
    return {_name("", verdict.failed.rank): text}


def of_file(text: str, *, ended: bool = False) -> dict[str, str]:
    """Return the texts of an evidence file by where they are from; what is malformed is left out.

    + ended: whether the test itself ended torchrun, whose own log is then left out
    """
    found = document.read(_Evidence, text, limit=EVIDENCE_LIMIT)
    texts: dict[str, str] = {}
    for value in found.root if isinstance(found, _Evidence) else ():
        with suppress(ValidationError):
            each = _Entry.model_validate(value)
            if not (ended and each.source == "torchrun"):
                name = _name(each.source, each.rank)
                texts[name] = "\n".join([*filter(None, [texts.get(name)]), each.text])
    return texts


def _name(source: str, rank: int | None) -> str:
    """Return where a text is from, such as "rank 1" or "kernel"."""
    return source or "log" if rank is None else f"rank {rank}"
