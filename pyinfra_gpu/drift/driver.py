"""The driver as declared and as found: every way in which they differ. Judged, never touched."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyinfra_gpu.drift import driver_modules, driver_packages, driver_repository

if TYPE_CHECKING:
    from pyinfra_gpu.drift.finding import Deviation
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

GPU_CANNOT_WORK = frozenset({"driver.nouveau-loaded", "driver.not-loaded", "driver.module-differs"})
"""With one of these no program can begin to use a GPU."""


def deviations(spec: HostSpec, record: Record) -> list[Deviation]:
    """Return how the driver differs from what is declared, in the order in which it is mended.

    A cpu stack has none. With ``driver_source = "present"`` somebody else keeps the driver: only
    what keeps a GPU from working is told, and nothing is acted upon.
    """
    if spec.accelerator != "nvidia":
        return []
    if spec.driver.source == "present":
        return [
            replace(each, effect="report", action="it is somebody else's (driver_source 'present')")
            for each in driver_modules.deviations(spec, record)
            if each.id in GPU_CANNOT_WORK
        ]
    return [
        *driver_repository.deviations(spec, record),
        *driver_packages.deviations(spec, record),
        *driver_modules.deviations(spec, record),
    ]


def chosen(found: list[Deviation], *names: str) -> list[Deviation]:
    """Return the deviations with these names, e.g. `chosen(found, "not-loaded")`."""
    return [each for each in found if each.id.partition(".")[2] in names]
