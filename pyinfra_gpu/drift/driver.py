"""The driver as declared and as found: every way in which they differ. Judged, never touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.drift import (
    driver_modules,
    driver_packages,
    driver_repository,
    driver_running,
)
from pyinfra_gpu.drift.driver_inventory import from_nvidia, ours, packages
from pyinfra_gpu.drift.finding import Stage
from pyinfra_gpu.drift.rules import Rules

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = Stage.DRIVER


def summary(spec: HostSpec, record: Record) -> str:
    """Name the driver, where it is from and for which kernels, where nothing differs."""
    if spec.accelerator != "nvidia":
        return ""
    loaded = f"driver {record.driver.loaded} loaded"
    if not ours(spec):
        return loaded
    where = "repository" if from_nvidia(spec) else "the distribution's archive"
    versions, newest = ", ".join(packages(spec, record).versions), record.kernel.newest
    built = "module built for every kernel"
    if newest not in (None, record.system.kernel):
        built += f"; kernel {newest} comes with the next boot"
    return f"{where} and pins as declared; driver {versions} from packages; {built}; {loaded}"


judge = Rules(
    *driver_repository.RULES,
    *driver_packages.RULES,
    *driver_modules.RULES,
    *driver_running.RULES,
)
"""In the order in which it is repaired."""
