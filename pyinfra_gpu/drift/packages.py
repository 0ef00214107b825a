"""Are the packages that the stages and `packages_extra` need installed? Judged, never touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.drift.finding import Finding, Id, Stage
from pyinfra_gpu.packages import needed as packages

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = Stage.PACKAGES

IDS = Id.of(STAGE)
"""What `packages.present` repairs."""


def needed(spec: HostSpec, record: Record) -> tuple[object, ...]:
    """Return the facts that this stage cannot do without."""
    del spec
    return (record.packages.installed, record.packages.half_configured)


def summary(spec: HostSpec, record: Record) -> str:
    """Say what was found where nothing is missing."""
    del spec, record
    return "complete"


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return which packages are missing, as one finding."""
    absent = packages.missing(spec, record.packages.installed)
    if not absent:
        return []
    names = ", ".join(absent)
    return [
        Finding(
            id=Id.PACKAGES_MISSING,
            found=f"lacks {names}",
            expected="the packages that the stages and `packages_extra` need",
            effect="repair",
            action=f"install {names}",
            packages=tuple(absent),
        )
    ]
