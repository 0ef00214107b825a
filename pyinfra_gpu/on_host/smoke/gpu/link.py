"""The PCIe link, the clock and what limits it, looked at while a GPU works.

An idle GPU drops its link to generation 1, so only what is seen under load counts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from . import nvidia_smi, throttle
from .nvidia_smi import Run, integer, number

_FIELDS = (
    *("index", "uuid", "pcie.link.gen.current", "pcie.link.width.current"),
    *("clocks.current.sm", "power.draw", "temperature.gpu", "clocks_event_reasons.active"),
)
_PAUSE = 0.05


class Sampler:
    """Asks nvidia-smi again and again from a thread, from entry to exit of the context."""

    def __init__(self, run: Run = nvidia_smi.run) -> None:
        self._run = run
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.samples: list[dict[str, Any]] = []
        """Each with "time" (CLOCK_MONOTONIC, of the answer) and "gpus"."""
        self.error: str | None = None

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.is_set():
            table = nvidia_smi.query(self._run, "gpu", _FIELDS)
            self.error = self.error or table.error
            if table.rows:
                gpus = [_gpu(row) for row in table.rows]
                self.samples.append({"time": time.monotonic(), "gpus": gpus})
            self._stop.wait(_PAUSE)


def _gpu(row: dict[str, str]) -> dict[str, Any]:
    return {
        "index": integer(row.get("index")),
        "gen": integer(row.get("pcie.link.gen.current")),
        "width": integer(row.get("pcie.link.width.current")),
        "sm_mhz": integer(row.get("clocks.current.sm")),
        "power_w": number(row.get("power.draw")),
        "temperature_c": integer(row.get("temperature.gpu")),
        "throttle_mask": nvidia_smi.bitmask(row.get("clocks_event_reasons.active")),
    }


def summary(
    samples: Sequence[dict[str, Any]], began: float, ended: float
) -> dict[str, dict[str, Any]]:
    """Return per GPU index what was seen between `began` and `ended`, the loaded time.

    `gen` and `width` are the largest seen, since a link only falls back where there is a pause;
    `throttle` are all reasons seen; None or empty: not told by this driver.
    """
    loaded = [sample for sample in samples if began <= sample["time"] <= ended]
    by_gpu: dict[str, list[dict[str, Any]]] = {}
    for sample in loaded:
        for gpu in sample["gpus"]:
            by_gpu.setdefault(str(gpu["index"]), []).append(gpu)
    return {index: _of_one(seen) for index, seen in by_gpu.items()}


def _of_one(seen: Sequence[dict[str, Any]]) -> dict[str, Any]:
    def largest(key: str) -> Any:
        return max((gpu[key] for gpu in seen if gpu[key] is not None), default=None)

    masks = [gpu["throttle_mask"] for gpu in seen if gpu["throttle_mask"] is not None]
    union = 0
    for mask in masks:
        union |= mask
    return {
        "samples": len(seen),
        "gen": largest("gen"),
        "width": largest("width"),
        "sm_mhz": largest("sm_mhz"),
        "power_w": largest("power_w"),
        "temperature_c": largest("temperature_c"),
        "throttle": throttle.reasons(union) if masks else None,
    }
