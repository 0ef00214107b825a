"""The machine under a run: its GPUs, as nvidia-smi has them, and its memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ...smoke import nvidia_smi
from ...smoke.nvidia_smi import Run, bitmask, number, reasons
from ...terminal import shortened

_LIMIT_S = 5.0
"""Without persistence a driver initialises every GPU first."""

_FIELDS = (
    *("index", "uuid", "name", "utilization.gpu", "memory.used", "memory.total"),
    *("temperature.gpu", "power.draw", "power.limit", "clocks_event_reasons.active"),
)
_KIB = re.compile(r"\d{1,15}")

# Clocks that are low because nothing runs are no news.
_THROTTLED = {
    "hw_thermal_slowdown": "too hot",
    "sw_thermal_slowdown": "too hot",
    "hw_power_brake_slowdown": "power brake",
    "hw_slowdown": "slowed down",
    "sw_power_cap": "power limit",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU now; None where the driver would not tell."""

    index: str = ""
    uuid: str = ""
    name: str = ""
    used_percent: float | None = None
    memory_mib: float | None = None
    memory_total_mib: float | None = None
    celsius: float | None = None
    watts: float | None = None
    watts_limit: float | None = None
    throttled: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """The machine's RAM in MiB: in use, which is what programs could not get, and all of it."""

    used_mib: float
    total_mib: float


class Gpus:
    """The GPUs of one run."""

    def __init__(self, ids: Sequence[str], run: Run | None = None) -> None:
        self._ids, self._run = tuple(ids), run or partial(nvidia_smi.run, limit=_LIMIT_S)

    def now(self) -> tuple[Gpu, ...] | str:
        """Return each of them, or why nothing is known; a run on the CPU has none."""
        if not self._ids:
            return ()
        table = nvidia_smi.query(self._run, "gpu", _FIELDS)
        if not table.rows:
            return shortened(table.error or "nvidia-smi said nothing", 120)
        told = [_gpu(row) for row in table.rows]
        ours = tuple(gpu for gpu in told if not gpu.uuid or gpu.uuid in self._ids)
        return ours or f"nvidia-smi shows none of {', '.join(self._ids)[:60]}"


def _gpu(row: Mapping[str, str]) -> Gpu:
    return Gpu(
        index=shortened(row.get("index", ""), 4),
        uuid=shortened(row.get("uuid", ""), 80),
        name=shortened(row.get("name", ""), 40),
        used_percent=number(row.get("utilization.gpu")),
        memory_mib=number(row.get("memory.used")),
        memory_total_mib=number(row.get("memory.total")),
        celsius=number(row.get("temperature.gpu")),
        watts=number(row.get("power.draw")),
        watts_limit=number(row.get("power.limit")),
        throttled=_throttled(row.get("clocks_event_reasons.active")),
    )


def _throttled(cell: str | None) -> str:
    names = reasons(bitmask(cell[:32] if cell else None) or 0)
    return next((word for name, word in _THROTTLED.items() if name in names), "")


def memory(path: Path = Path("/proc/meminfo")) -> Memory | None:
    """Return the machine's memory, None where the kernel would not tell."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()[:100]
    except (OSError, ValueError):
        return None
    found = {line.partition(":")[0]: _number(line.partition(":")[2].strip()) for line in lines}
    total, free = found.get("MemTotal"), found.get("MemAvailable")
    if total is None or free is None:
        return None
    return Memory(used_mib=(total - free) / 1024, total_mib=total / 1024)


def _number(cell: str) -> float | None:
    found = _KIB.match(cell)
    return float(found[0]) if found else None
