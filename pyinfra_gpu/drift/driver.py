"""The driver as declared and as found: every way in which they differ. Judged, never touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.drift import (
    driver_alternatives,
    driver_modules,
    driver_packages,
    driver_repository,
    driver_running,
)

if TYPE_CHECKING:
    from pyinfra_gpu.drift.finding import Finding
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

PARTS = (driver_repository, driver_packages, driver_alternatives, driver_modules, driver_running)
"""In the order in which they are repaired."""


class _Last:
    """The host that was judged last: preflight asks a dozen times what the driver is going to do.

    Known by being the very same two values, which never change; to compare all that is in them, or
    to make a key of it, would take longer than to judge again.
    """

    def __init__(self) -> None:
        self._asked: tuple[HostSpec, Record] | None = None
        self._found: tuple[Finding, ...] = ()

    def judge(self, spec: HostSpec, record: Record) -> tuple[Finding, ...]:
        asked = self._asked
        if asked is None or asked[0] is not spec or asked[1] is not record:
            self._found = tuple(each for part in PARTS for each in part.judge(spec, record))
            self._asked = spec, record
        return self._found


_last = _Last()


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return how the driver differs from what is declared; a cpu stack has none."""
    return list(_last.judge(spec, record))
