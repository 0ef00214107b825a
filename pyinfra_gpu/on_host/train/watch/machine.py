"""The machine under a run: its GPUs, as nvidia-smi has them, and its memory."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...terminal import shortened

_LIMIT_S = 5.0
"""Without persistence a driver initialises every GPU first."""

_FIELDS = (
    ("index", ()),
    ("uuid", ()),
    ("name", ()),
    ("utilization.gpu", ()),
    ("memory.used", ()),
    ("memory.total", ()),
    ("temperature.gpu", ()),
    ("power.draw", ()),
    ("power.limit", ()),
    # Drivers before 535 know it by the second name.
    ("clocks_event_reasons.active", ("clocks_throttle_reasons.active",)),
)
_INVALID = re.compile(r'Field "([^"]{1,80})" is not a valid field to query')
_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d{1,6})?")

# nvml.h, nvmlClocksEventReason*. Clocks that are low because nothing runs are no news.
_THROTTLED = (
    (0x040, "too hot"),
    (0x020, "too hot"),
    (0x080, "power brake"),
    (0x008, "slowed down"),
    (0x004, "power limit"),
)


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


Run = Callable[[Sequence[str]], str]
"""Runs a command and returns what it printed; raises OSError with a reason."""


def run(command: Sequence[str]) -> str:
    """Run a command for at most a few seconds."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"{command[0]} did not answer within {_LIMIT_S:.0f} s") from None
    except FileNotFoundError:
        raise OSError(f"there is no {command[0]} on this host") from None
    return done.stdout[: 1 << 16].decode("utf-8", "replace")


class Gpus:
    """The GPUs of one run."""

    def __init__(self, ids: Sequence[str], runs: Run = run) -> None:
        self._ids, self._run = tuple(ids), runs
        self._fields = list(_FIELDS)

    def now(self) -> tuple[Gpu, ...] | str:
        """Return each of them, or why nothing is known; a run on the CPU has none."""
        if not self._ids:
            return ()
        try:
            text = self._asked()
        except OSError as error:
            return str(error)
        wanted = len(self._fields)
        rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
        told = [self._gpu(row) for row in rows if len(row) == wanted]
        if not told:
            return shortened(text, 120) or "nvidia-smi said nothing"
        ours = tuple(gpu for gpu in told if not gpu.uuid or gpu.uuid in self._ids)
        return ours or f"nvidia-smi shows none of {', '.join(self._ids)[:60]}"

    def _asked(self) -> str:
        """Ask for every field; one that this driver does not know is asked for no more."""
        while self._fields:
            names = ",".join(name for name, _ in self._fields)
            query = f"--query-gpu={names}"
            text = self._run(["nvidia-smi", query, "--format=csv,noheader,nounits"])
            unknown = _INVALID.search(text)
            if unknown is None:
                return text
            self._forget(unknown[1])
        return ""

    def _forget(self, name: str) -> None:
        kept = [each for each in self._fields if each[0] != name]
        if len(kept) == len(self._fields):
            raise OSError(f"nvidia-smi does not know {shortened(name, 40)}")
        others = next(each[1] for each in self._fields if each[0] == name)
        self._fields = [*kept, *((other, ()) for other in others)]

    def _gpu(self, row: Sequence[str]) -> Gpu:
        cells = {name: cell for (name, _), cell in zip(self._fields, row, strict=True)}
        numbers = {name: _number(cell) for name, cell in cells.items()}
        reasons = next((cell for name, cell in cells.items() if "reasons" in name), "")
        return Gpu(
            index=shortened(cells.get("index", ""), 4),
            uuid=shortened(cells.get("uuid", ""), 80),
            name=shortened(cells.get("name", ""), 40),
            used_percent=numbers.get("utilization.gpu"),
            memory_mib=numbers.get("memory.used"),
            memory_total_mib=numbers.get("memory.total"),
            celsius=numbers.get("temperature.gpu"),
            watts=numbers.get("power.draw"),
            watts_limit=numbers.get("power.limit"),
            throttled=_throttled(reasons),
        )


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
    found = _NUMBER.match(cell)
    return float(found[0]) if found else None


def _throttled(cell: str) -> str:
    try:
        mask = int(cell[:32], 0)
    except ValueError:
        return ""
    return next((word for bit, word in _THROTTLED if mask & bit), "")
