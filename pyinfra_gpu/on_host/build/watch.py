"""Following a build: its state, a line of JSON whenever it changes, until it ends."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from .files import read_json
from .place import Place
from .state import RUNNING

_LOOK_S = 0.5
_ALIVE_S = 10.0
_GONE_LOOKS = 6
"""Looks without a process after which a build that says it runs is called ended."""


def watch(place: Place) -> int:
    """Print the state now and at each change, and again where nothing changed for a while.

    Ends when the build has ended. What says that it runs, and has no process, was killed.
    """
    last, told, missing = "", 0.0, 0
    while True:
        state = read_json(place.state)
        running = alive(place)
        missing = 0 if running else missing + 1
        ended = state.get("status") != RUNNING
        gone = missing >= _GONE_LOOKS
        line = json.dumps({**state, "alive": running}, sort_keys=True)
        if line != last or time.monotonic() - told > _ALIVE_S or gone:
            last, told = line, time.monotonic()
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        if (ended and not running) or gone:
            return 0
        time.sleep(_LOOK_S)


def alive(place: Place) -> bool:
    """Tell whether the process that builds is there."""
    try:
        pid = int(place.pid.read_text().strip())
        return b"run" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return False
