"""What the smoke test left on the host."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact


@dataclass(frozen=True, kw_only=True, slots=True)
class SmokeRecord(Jsonable):
    """The raw texts, which may be half-written or foreign: whoever reads them judges them.

    + stamp_text: the stamp of the last pass; verdict_text: the verdict of the last run
    """

    stamp_text: str | Unknown | None
    verdict_text: str | Unknown | None


class Smoke(ConcernFact[SmokeRecord]):
    """The smoke test's traces: `pyinfra INVENTORY fact pyinfra_gpu.facts.smoke.Smoke`."""

    def read(self, fields: Fields) -> SmokeRecord:
        """Only this concern of the probe's answer."""
        return parse(fields)


def parse(fields: Fields) -> SmokeRecord:
    """The traces, from the probe's fields."""
    return SmokeRecord(
        stamp_text=fields.document("smoke.stamp"), verdict_text=fields.document("smoke.verdict")
    )
