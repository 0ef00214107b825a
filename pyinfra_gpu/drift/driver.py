"""The driver as declared and as found: every way in which they differ. Judged, never touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.drift import (
    driver_modules,
    driver_packages,
    driver_repository,
    driver_running,
)

if TYPE_CHECKING:
    from pyinfra_gpu.drift.finding import Finding
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

PARTS = (driver_repository, driver_packages, driver_modules, driver_running)
"""In the order in which they are repaired."""


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return how the driver differs from what is declared; a cpu stack has none."""
    return [each for part in PARTS for each in part.judge(spec, record)]
