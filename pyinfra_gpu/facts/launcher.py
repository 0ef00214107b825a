"""The launcher of training runs: what it stands on, and the runs that are on."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown
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

    def read(self, fields: Fields) -> LauncherRecord:
        """Only this concern of the probe's answer."""
        return parse(fields)


def parse(fields: Fields) -> LauncherRecord:
    """Linger and runs, from the probe's fields."""
    linger, runs = fields.present("launcher.linger"), fields.items("launcher.run")
    if not isinstance(runs, Unknown):
        runs = tuple(run for run in dict.fromkeys(runs) if _RUN.fullmatch(run))
    manager = fields.text("launcher.manager")
    return LauncherRecord(
        linger=linger if isinstance(linger, Unknown) else linger == "1",
        manager=manager == "1" if isinstance(manager, str) else manager,
        masked=fields.items("launcher.masked"),
        own_masked=fields.items("training.masked"),
        runs=runs,
    )
