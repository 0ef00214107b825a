"""How far a build is: one JSON file, always whole, that tells it to whoever asks."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from .files import read_json, write_json
from .place import Place

SCHEMA = 1
RUNNING, DONE, FAILED, STOPPED = "running", "done", "failed", "stopped"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return the kernel's name for this boot."""
    return _BOOT_ID.read_text(encoding="ascii").strip()


def now() -> str:
    """Return the time as it stands in our documents."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class State:
    """The state file of one build; every change is on disk before the call returns."""

    def __init__(self, place: Place) -> None:
        self._path = place.state
        self.known: dict[str, Any] = read_json(place.state)

    @classmethod
    def begun(cls, place: Place, fingerprint: str) -> State:
        """Begin to build, or go on; what an earlier build of the same fingerprint did counts."""
        state = cls(place)
        before = state.known
        same = before.get("fingerprint") == fingerprint and before.get("schema") == SCHEMA
        kept = {key: before[key] for key in _KEPT if key in before} if same else {}
        state.known = {
            **_FRESH,
            **kept,
            "schema": SCHEMA,
            "fingerprint": fingerprint,
            "status": RUNNING,
            "started": now(),
            "boot_id": boot_id(),
            "unclean": _unclean(before),
            "pid": os.getpid(),
            "error": None,
        }
        state.save()
        return state

    def save(self, **changes: Any) -> None:
        """Take over changes and have them on disk."""
        self.known |= changes
        self.known["updated"] = now()
        write_json(self._path, self.known)

    def progress(self, percent: float) -> int:
        """Return a percentage that never goes back."""
        self.known["percent"] = max(int(self.known["percent"]), min(int(percent), 100))
        return int(self.known["percent"])

    def note(self, sentence: str) -> None:
        """Add what people should know of this build."""
        self.save(notes=[*self.known["notes"], sentence][-20:])


_KEPT = ("done", "percent", "total", "synced", "notes", "jobs", "limit_mib", "compiled", "stand_in")
_FRESH: dict[str, Any] = {
    "phase": "fetch",
    "done": [],
    "percent": 0,
    "steps_done": 0,
    "total": 0,
    "left_s": None,
    "memory_mib": None,
    "synced": 0.0,
    "jobs": 0,
    "limit_mib": 0,
    "compiled": 0,
    "notes": [],
    "stand_in": False,
}


def _unclean(before: dict[str, Any]) -> bool:
    """Tell whether the machine went down while a build was at work, or nobody can say.

    Then what stands on its disk may be empty, cut or old, whatever its time says.
    """
    if not before:
        return False
    if before.get("boot_id") == boot_id():
        return bool(before.get("unclean")) and before.get("status") != DONE
    return before.get("status") == RUNNING or bool(before.get("unclean"))
