"""The distribution's packages, and who is working on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact


@dataclass(frozen=True, kw_only=True, slots=True)
class PackagesRecord(Jsonable):
    """What the package manager says.

    + installed: name -> version of those asked names that are completely installed
    + half_configured: all packages that it is not done with
    + settings: what it says of settings of its own that it cannot read, None where it can
    + lock_holder: the other process that holds its lock, e.g. "pid 123 (unattended-upgr)"
    """

    installed: Mapping[str, str] | Unknown
    half_configured: tuple[str, ...] | Unknown
    lock_holder: str | Unknown | None
    settings: str | Unknown | None


class Packages(ConcernFact[PackagesRecord]):
    """Packages: `pyinfra INVENTORY fact pyinfra_gpu.facts.packages.Packages`."""

    def read(self, answer: Answer) -> PackagesRecord:
        """Only this concern of what a host answered."""
        return parse(answer)


def parse(answer: Answer) -> PackagesRecord:
    """Return this concern, of what a host answered."""
    return answer.part(PackagesRecord, "packages")
