"""Beginning again by itself: how often, after how long, and only after what mostly passes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..rundir import Run

_EXPLAINED_S = 60.0
_LONGEST_WAIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an attempt failed, by the catalogue; `id` is empty where nothing known explains it."""

    id: str = ""
    words: str = ""
    passing: bool = False


def cause_of(run: Run) -> Cause:
    """Return why a run's last attempt failed; never raises.

    Another process reads the logs: what that takes of memory is gone with it.
    """
    try:
        said = subprocess.run(
            [sys.argv[0], "why", run.name, "--json"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_EXPLAINED_S,
            check=False,
        )
        told: Mapping[str, Any] = json.loads(said.stdout)
        return Cause(str(told["id"] or ""), str(told["cause"] or ""), told["passing"] is True)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return Cause()


class Retries:
    """How many attempts may follow, and how long each waits: twice as long as the one before."""

    def __init__(self, allowed: int, wait_s: float) -> None:
        self.allowed, self.done, self._wait_s = allowed, 0, wait_s

    def wait(self, cause: Cause) -> float | None:
        """Return how many seconds to wait before the next attempt; None where none follows."""
        if self.done >= self.allowed or not cause.passing:
            return None
        self.done += 1
        return min(self._wait_s * (1 << min(self.done - 1, 20)), _LONGEST_WAIT_S)

    def words(self, cause: Cause) -> str:
        """Return what is waited for, as `list` and `why` say it."""
        return f"retry {self.done} of {self.allowed}, after {cause.id}, which mostly passes"
