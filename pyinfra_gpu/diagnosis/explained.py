"""A smoke test's verdict, and why the test failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, RootModel

from pyinfra_gpu.facts import document

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.facts.verdict import Verdict
    from pyinfra_gpu.on_host.diagnosis.explain import Answer, Found

EVIDENCE_LIMIT = 768 * 1024
"""Bytes of an evidence file; the test itself keeps its own below 512 KiB."""


@dataclass(frozen=True)
class Explained:
    """A verdict, and what is known of why its test failed.

    + diagnosis: None where nothing failed, or where nobody asked
    """

    verdict: Verdict
    diagnosis: Answer | None = None

    @property
    def root(self) -> Found | None:
        """The root cause, None where nothing known explains the failure."""
        return next(iter(self.diagnosis.found), None) if self.diagnosis else None

    @property
    def tail(self) -> list[str]:
        """The log's last lines, where nothing known explains the failure."""
        failed = self.verdict.failed
        if failed is None or self.root or _measured(self.verdict):
            return []
        lines = failed.tail or (self.diagnosis.unexplained.splitlines() if self.diagnosis else ())
        return [line for line in lines if line.strip(" ^~|")]  # Python underlines so

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as it came, a failed one with its `diagnosis`."""
        known = {"diagnosis": self.diagnosis.as_json()} if self.diagnosis else {}
        return {**self.verdict.as_json(), **known}


def explained(verdict: Verdict, record: Record, evidence: str = "") -> Explained:
    """Return a verdict, that of a failed test with what `pyinfra-gpu explain` says of it.

    + record: of the host, which decides between two readings of a message
    + evidence: the file that the test left; without it, the lines in the verdict have to do

    Where a figure of the test is wrong, the logs say nothing of it, and its check is the evidence.
    What reads logs is imported where a test has failed: a run with nothing to do is quicker so.
    """
    failed = verdict.failed
    if failed is None:
        return Explained(verdict)
    from pyinfra_gpu.diagnosis.catalogue import catalogue
    from pyinfra_gpu.diagnosis.host_facts import facts_of
    from pyinfra_gpu.on_host.diagnosis.explain import explain

    if _measured(verdict):
        texts = {"the smoke test": f"{failed.id}: {failed.sentence}"}
    else:
        texts = of_file(evidence, ended="(the deadline)" in failed.sentence)
        texts = texts or {_name("", failed.rank): "\n".join(failed.tail)}
    return Explained(verdict, explain(texts, catalogue(), facts_of(record)))


def _measured(verdict: Verdict) -> bool:
    """Tell whether what failed is a figure that the test measured, and not the end of a rank."""
    check = verdict.check(verdict.failed.id) if verdict.failed else None
    return check is not None and check.seconds is not None


class _Entry(BaseModel):
    """The end of one log."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")
    source: str = ""
    rank: int | None = None
    text: str


class _Evidence(RootModel[tuple[_Entry, ...]]):
    """The file that a failed test leaves: entries, the first cause's first."""


def of_file(text: str, *, ended: bool = False) -> dict[str, str]:
    """Return the texts of an evidence file by where they are from; nothing where it is malformed.

    + ended: whether the test itself ended torchrun, whose own log then names no cause
    """
    found = document.read(_Evidence, text, limit=EVIDENCE_LIMIT)
    texts: dict[str, str] = {}
    for each in found.root if isinstance(found, _Evidence) else ():
        if not (ended and each.source == "torchrun"):
            name = _name(each.source, each.rank)
            texts[name] = "\n".join([*filter(None, [texts.get(name)]), each.text])
    return texts


def _name(source: str, rank: int | None) -> str:
    """Return where a text is from, such as "rank 1" or "kernel"."""
    return source or "log" if rank is None else f"rank {rank}"
