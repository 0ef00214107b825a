"""The GPUs of this host as its driver tells of them, by UUID: an index changes with a boot."""

from __future__ import annotations

from dataclasses import dataclass

from ..smoke import nvidia_smi
from ..smoke.nvidia_smi import Run, Table, integer
from .errors import TrainError

_FIELDS = ("index", "uuid", "memory.total", "memory.used", "name")
_USERS = ("gpu_uuid", "pid", "process_name")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; memory in MiB, 0 where the driver does not tell it."""

    index: int
    uuid: str
    total_mib: int
    used_mib: int
    name: str


def listed(run: Run = nvidia_smi.run) -> list[Gpu]:
    """Return the GPUs there are, by index; raises TrainError where the driver does not answer."""
    table = _asked(run, "gpu", _FIELDS)
    found = [
        Gpu(
            index=integer(row["index"]) or 0,
            uuid=row["uuid"],
            total_mib=integer(row["memory.total"]) or 0,
            used_mib=integer(row["memory.used"]) or 0,
            name=row["name"],
        )
        for row in table.rows
    ]
    return sorted(found, key=lambda each: each.index)


def users(run: Run = nvidia_smi.run) -> dict[str, list[str]]:
    """Return UUID -> processes that work on that GPU, e.g. "pid 712 (python)".

    Raises TrainError where the driver does not answer.
    """
    found: dict[str, list[str]] = {}
    for row in _asked(run, "compute-apps", _USERS).rows:
        name = row["process_name"].rpartition("/")[2][:40]
        found.setdefault(row["gpu_uuid"], []).append(f"pid {row['pid']} ({name})")
    return found


def _asked(run: Run, what: str, fields: tuple[str, ...]) -> Table:
    """Return what nvidia-smi tells; what it says of a GPU that answers no more is no answer."""
    table = nvidia_smi.query(run, what, fields)
    if table.error:
        raise TrainError(table.error)
    return table
