"""Are the packages that the stages and `packages_extra` need installed? Judged, never touched."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra_gpu.drift.finding import Finding, Id, Stage, repair, report
from pyinfra_gpu.drift.rules import Rules, if_known, known
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.packages.needed import missing, needed
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.text import some

STAGE = Stage.PACKAGES

IDS = Id.of(STAGE)
"""What `packages.present` repairs."""

_NAMED = 3  # so many are named


def summary(spec: HostSpec, record: Record) -> str:
    """Say what was found where nothing is missing."""
    del spec, record
    return "complete"


def _missing(spec: HostSpec, record: Record) -> Iterator[Finding]:
    installed = known(record.packages.installed)
    if absent := tuple(missing(spec, installed, record.system.python3)):
        names, expected = (
            ", ".join(absent),
            "the packages that the stages and `packages_extra` need",
        )
        found, action = f"missing packages: {names}", f"install {names}"
        yield repair(Id.PACKAGES_MISSING, found, expected, action, absent)


def _unfinished(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Find packages of somebody's that stand half installed: each later installation stumbles.

    The driver's and those we need are finished by whoever repairs them; while somebody installs
    packages, others may be on their way.
    """
    half = known(record.packages.half_configured)
    if record.packages.lock_holder is not None:
        return
    ours = {*needed(spec), *(each.name for each in if_known(record.nvidia.packages, ()))}
    if theirs := tuple(name for name in half if name not in ours):
        found = f"{some(theirs, _NAMED)} not completely installed"
        expected = "no half-installed package, since it breaks the next installation"
        action, command = "left alone: not installed by this project", "sudo dpkg --configure -a"
        yield report(Id.PACKAGES_UNFINISHED, found, expected, action, command, theirs)


def _settings(spec: HostSpec, record: Record) -> Iterator[Finding]:
    del spec
    if said := if_known(record.packages.settings, None):
        found = f"the package manager cannot read its settings ({said})"
        expected = "settings with which packages can be installed"
        action = "left alone: repair or remove the file that it names"
        yield report(Id.PACKAGES_SETTINGS_UNREADABLE, found, expected, action)


judge = Rules(_missing, _unfinished, _settings)
