"""What the smoke test left on the host."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact
from pyinfra_gpu.facts.verdict import Stamp, Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class SmokeRecord(Jsonable):
    """What the host wrote, read once; half a file, or a foreign one, is unknown.

    + stamp: of the last pass; verdict: of the last run
    + verdict_sha256: digest of the verdict's text, in hexadecimal; None where there is none
    """

    stamp: Stamp | Unknown | None
    verdict: Verdict | Unknown | None
    verdict_sha256: str | Unknown | None


class Smoke(ConcernFact[SmokeRecord]):
    """The smoke test's traces: `pyinfra INVENTORY fact pyinfra_gpu.facts.smoke.Smoke`."""

    def read(self, answer: Answer) -> SmokeRecord:
        """Only this concern of what a host answered."""
        return parse(answer)


def parse(answer: Answer) -> SmokeRecord:
    """Return this concern, of what a host answered."""
    text = answer.text("smoke.verdict")
    return SmokeRecord(
        stamp=Stamp.read(answer.text("smoke.stamp")),
        verdict=Verdict.read(text),
        verdict_sha256=_digest(text),
    )


def _digest(text: str | Unknown | None) -> str | Unknown | None:
    return hashlib.sha256(text.encode()).hexdigest() if isinstance(text, str) else text
