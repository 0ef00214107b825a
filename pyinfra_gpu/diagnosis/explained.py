"""A smoke test's verdict, and why the test failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.facts.verdict import AcrossVerdict, Verdict
    from pyinfra_gpu.on_host.diagnosis.matcher import Diagnosis, Finding


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

    What reads logs is imported where a test has failed: a run with nothing to do is quicker so.
    """
    if verdict.passed:
        return Explained(verdict)
    from pyinfra_gpu.diagnosis.evidence import of_file, of_verdict
    from pyinfra_gpu.diagnosis.host_facts import facts_of
    from pyinfra_gpu.diagnosis.matcher import diagnose

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
    return check is not None and check.seconds is not None
