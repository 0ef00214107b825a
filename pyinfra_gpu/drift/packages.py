"""Are the packages that the stages and `packages_extra` need installed? Judged, never touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.drift.finding import Finding, Id, Stage
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.packages import needed as packages
from pyinfra_gpu.text import some

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = Stage.PACKAGES

IDS = Id.of(STAGE)
"""What `packages.present` repairs."""

_NAMED = 3  # so many are named


def needed(spec: HostSpec, record: Record) -> tuple[object, ...]:
    """Return the facts that this stage cannot do without."""
    del spec
    return (record.packages.installed, record.packages.half_configured)


def summary(spec: HostSpec, record: Record) -> str:
    """Say what was found where nothing is missing."""
    del spec, record
    return "complete"


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return which packages are missing, and what keeps the package manager from its work."""
    return [*_missing(spec, record), *_unfinished(spec, record), *_settings(record)]


def _missing(spec: HostSpec, record: Record) -> list[Finding]:
    absent = packages.missing(spec, record.packages.installed, record.system.python3)
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


def _unfinished(spec: HostSpec, record: Record) -> list[Finding]:
    """Find packages of somebody's that stand half installed: each later installation stumbles.

    The driver's and those we need are finished by whoever repairs them; while somebody installs
    packages, others may be on their way.
    """
    half, lock = record.packages.half_configured, record.packages.lock_holder
    if isinstance(half, Unknown) or lock is not None:
        return []
    driver = record.nvidia.packages
    ours = {*packages.needed(spec)}
    ours |= set() if isinstance(driver, Unknown) else {each.name for each in driver}
    theirs = [name for name in half if name not in ours]
    if not theirs:
        return []
    return [
        Finding(
            id=Id.PACKAGES_UNFINISHED,
            found=f"{some(theirs, _NAMED)} not completely installed",
            expected="no package half installed, which the next installation stumbles over",
            effect="report",
            action="left alone, not being ours",
            command="sudo dpkg --configure -a",
            packages=tuple(theirs),
        )
    ]


def _settings(record: Record) -> list[Finding]:
    said = record.packages.settings
    if not isinstance(said, str):
        return []
    return [
        Finding(
            id=Id.PACKAGES_SETTINGS_UNREADABLE,
            found=f"the package manager cannot read its settings ({said})",
            expected="settings with which packages can be installed",
            effect="report",
            action="left alone: mend the file that it names, or take it away",
        )
    ]
