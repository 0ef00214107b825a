"""Who and what a restart of the machine would interrupt."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact


@dataclass(frozen=True, kw_only=True, slots=True)
class Reboot(Jsonable):
    """A reboot that we asked for: when, in seconds since 1970, in which boot, and what for."""

    at: int
    boot_id: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PowerRecord(Jsonable):
    """What stands against a restart, beside processes on the GPUs.

    + sessions: people at a terminal or a display, e.g. "alice on pts/0"; an SSH connection
      without a terminal, as ours, is none
    + inhibitors: locks that block a shutdown, e.g. "backup.service: nightly dump"
    + reboots: those that were asked for, and whose cause is not known to be gone
    """

    sessions: tuple[str, ...] | Unknown
    inhibitors: tuple[str, ...] | Unknown
    reboots: tuple[Reboot, ...] | Unknown


class Power(ConcernFact[PowerRecord]):
    """What a restart would interrupt: `pyinfra INVENTORY fact pyinfra_gpu.facts.power.Power`."""

    def read(self, answer: Answer) -> PowerRecord:
        """Only this concern of what a host answered."""
        return parse(answer)


def parse(answer: Answer) -> PowerRecord:
    """Return this concern, of what a host answered."""
    return answer.part(PowerRecord, "power")
