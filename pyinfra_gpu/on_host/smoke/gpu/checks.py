"""All checks of GPU hosts, by who supplies their facts; see `judge.Check`.

HOST_CHECKS and AFTER_CHECKS (S0, S5) and RUN_CHECKS (S4) are decided on the launcher's facts,
DEVICE_CHECKS (S1) on those of one process a GPU, RANK_CHECKS and PAIR_CHECKS (S4) on the ranks'.
"""

from __future__ import annotations

from .checks_after import AFTER_CHECKS
from .checks_device import DEVICE_CHECKS
from .checks_host import HOST_CHECKS
from .checks_ranks import PAIR_CHECKS, RANK_CHECKS, RUN_CHECKS
from .ranks import REHEARSAL_1GPU

__all__ = [
    "AFTER_CHECKS",
    "DEVICE_CHECKS",
    "HOST_CHECKS",
    "PAIR_CHECKS",
    "RANK_CHECKS",
    "RUN_CHECKS",
    "applies",
]

_NOT_ON_ONE_GPU = frozenset({"S4.pairs_exact", "S4.link", "S4.bandwidth"})
"""Two ranks that share a GPU take turns on it: their speed is nobody's."""


def applies(check_id: str, mode: str) -> bool:
    """Return whether the check is decided in `mode`, "gpu" or "rehearsal-1gpu"."""
    return mode != REHEARSAL_1GPU or check_id not in _NOT_ON_ONE_GPU
