"""What the launcher does for a test on GPUs beside what it does for any; it never imports torch."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..gpu import expected, host, metrics, precision, transport, xid
from ..journal import Journal
from ..options import GPU, REHEARSAL_1GPU, Options

_LADDER_S = 60.0


@dataclass
class GpuSide:
    """The GPUs of this host as seen before, during and after one test."""

    options: Options
    kinds: expected.Kinds = field(default_factory=expected.kinds)
    before: dict[str, Any] = field(default_factory=host.read)
    shared: list[str] | None = field(default_factory=host.shm_files)
    run_facts: dict[str, Any] = field(default_factory=dict)
    xids: list[dict[str, Any]] | None = None

    @property
    def found(self) -> int:
        """Return how many GPUs nvidia-smi lists."""
        return len(self.before["gpus"])

    @property
    def declared(self) -> int:
        """Return how many GPUs are to be tested: as declared, or else all that are there."""
        return self.options.gpus or max(self.found, 1)

    @property
    def mode(self) -> str:
        """Return the mode that is possible: one GPU alone can only be shared by two ranks."""
        one = self.options.mode == GPU and (self.options.gpus or self.found) == 1
        return REHEARSAL_1GPU if one else self.options.mode

    def after_ranks(
        self, directory: Path, bundle: Path, environment: Mapping[str, str], until: float
    ) -> dict[str, Any]:
        """Read which way NCCL's data went, and try the number formats; return the facts."""
        limit = max(1.0, min(_LADDER_S, until - time.monotonic()))
        command = [sys.executable, str(bundle)]
        self.run_facts = {
            "transport": transport.read(directory),
            "precision": precision.ladder(command, environment, 0, limit=limit),
        }
        return self.run_facts

    def after(
        self, kernel: Sequence[str] | None, pids: Collection[int], ranks: Mapping[int, Journal]
    ) -> dict[str, Any]:
        """Return the facts of S5."""
        self.xids = None if kernel is None else xid.parse(kernel)
        loaded = ranks[0].facts.get("bandwidth", {}).get("link") if 0 in ranks else None
        after = host.after(self.before, pids, self.shared, loaded)
        return {"xids": self.xids, "gpu_after": after}

    def figures(
        self, singles: Mapping[int, Journal], ranks: Mapping[int, Journal]
    ) -> dict[str, Any]:
        """Return the figures for the verdict."""
        return metrics.figures(_facts(singles), _facts(ranks), self.run_facts)

    def records(self, ranks: Mapping[int, Journal]) -> list[dict[str, Any]]:
        """Return the verdict's `gpus`."""
        return metrics.gpu_records(self.before, _facts(ranks))


def _facts(journals: Mapping[int, Journal]) -> dict[int, Mapping[str, Any]]:
    return {number: journal.facts for number, journal in journals.items()}
