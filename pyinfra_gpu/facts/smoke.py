"""What the smoke test left on the host."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown
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

    def read(self, fields: Fields) -> SmokeRecord:
        """Only this concern of the probe's answer."""
        return parse(fields)


def parse(fields: Fields) -> SmokeRecord:
    """The traces, from the probe's fields."""
    text = fields.document("smoke.verdict")
    return SmokeRecord(
        stamp=Stamp.read(fields.document("smoke.stamp")),
        verdict=Verdict.read(text),
        verdict_sha256=_digest(text),
    )


def _digest(text: str | Unknown | None) -> str | Unknown | None:
    return hashlib.sha256(text.encode()).hexdigest() if isinstance(text, str) else text
