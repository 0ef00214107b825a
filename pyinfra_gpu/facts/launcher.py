"""The launcher of training runs: what it stands on, and the runs that are on."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact

_RUN = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class LauncherRecord(Jsonable):
    """What systemd has of it.

    + linger: whether the owner's user manager runs without a login
    + manager: whether it is on now, None where the kernel has no control groups of version 2
    + masked: files of the system's that forbid it, or a run's unit, to start; own_masked: of the
      owner's
    + runs: those that are on or wait for their GPUs, by name; the owner names them
    """

    linger: bool | Unknown
    manager: bool | Unknown | None
    masked: tuple[str, ...] | Unknown
    own_masked: tuple[str, ...] | Unknown
    runs: tuple[str, ...] | Unknown


class Launcher(ConcernFact[LauncherRecord]):
    """Training runs: `pyinfra INVENTORY fact pyinfra_gpu.facts.launcher.Launcher`."""

    def read(self, answer: Answer) -> LauncherRecord:
        """Only this concern of what a host answered."""
        return parse(answer)


def parse(answer: Answer) -> LauncherRecord:
    """Return this concern, of what a host answered."""
    runs = answer.value(tuple[str, ...], "launcher.runs")
    if not isinstance(runs, Unknown):
        runs = tuple(run for run in dict.fromkeys(runs) if _RUN.fullmatch(run))
    return answer.part(LauncherRecord, "launcher", runs=runs)
