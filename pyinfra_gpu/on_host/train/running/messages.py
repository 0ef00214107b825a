"""What a run tells its owner by the declared command: one JSON document on standard input.

The command is no part of the run. It is given a few seconds, and whatever becomes of it is a line
in the launcher's log and nothing else. Nobody waits for it but the end of an attempt.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..environment import plain
from ..reading.stall import stalled
from ..rundir import Document, now
from .retrying import Cause

SCHEMA = 1
LIMIT_S = 20.0
_POLL_S = 0.05
_STEP = ("step", "steps", "loss", "not_finite", "tokens_per_second")


def message(event: str, document: Document, last: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return what is told: nothing of the command line, the variables or the logs is in it.

    + event: "finished", "failed", "stopped", "stalled" or "resumed"
    + last: the figures of the last step
    + more: what this event has beside them
    """
    attempt = document["attempts"][-1]
    resumed = attempt["resumed_from"]
    return {
        "schema": SCHEMA,
        "event": event,
        "time": now(),
        **{name: document[name] for name in ("run", "host", "preset")},
        "attempt": attempt["number"],
        "resumed_from": Path(resumed).name if resumed else None,
        "exit": attempt["exit"],
        **{name: last.get(name) for name in _STEP},
        "cause": None,
        "why": None,
        "waits": document["waits"],
        "stalled_seconds": None,
        **more,
    }


def of_cause(cause: Cause) -> dict[str, str | None]:
    """Return why an attempt failed, as a message has it."""
    return {"cause": cause.id or None, "why": cause.words or None}


class Messenger:
    """Runs the declared command, and ends it when its time is over.

    + command: words; none where nothing is declared
    + say: is told what went wrong with it
    """

    def __init__(
        self, command: Sequence[str], say: Callable[[str], None], limit_s: float = LIMIT_S
    ) -> None:
        self.command, self.say, self.limit_s = command, say, limit_s
        self._running: list[tuple[subprocess.Popen[bytes], float]] = []

    def tell(self, told: Mapping[str, Any]) -> None:
        """Start the command with this on its standard input; never raises."""
        if not self.command:
            return
        try:
            document = os.memfd_create("message", os.MFD_CLOEXEC)
            try:
                os.write(document, json.dumps(told).encode() + b"\n")
                os.lseek(document, 0, os.SEEK_SET)
                process = subprocess.Popen(
                    self.command,
                    stdin=document,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env=plain(),
                    start_new_session=True,
                )
            finally:
                os.close(document)
        except (OSError, ValueError) as error:
            self.say(f"train: the command of training_notify cannot be run: {error}")
            return
        self._running.append((process, time.monotonic() + self.limit_s))

    def pids(self) -> list[int]:
        """Return the processes that were started, which are not part of the run."""
        return [process.pid for process, _ in self._running]

    def look(self) -> None:
        """See what became of those that were started; whose time is over is ended."""
        still = []
        for process, until in self._running:
            code = process.poll()
            if code is None and time.monotonic() < until:
                still.append((process, until))
                continue
            # Its session is ended in any case: what it left behind is nobody's.
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if code is None:
                self.say(f"train: the command of training_notify took over {self.limit_s:.0f} s")
            elif code != 0:
                self.say(f"train: the command of training_notify ended with {code}")
        self._running = still

    def finish(self) -> None:
        """Wait until all have ended, none longer than it may take."""
        while self._running:
            self.look()
            if self._running:
                time.sleep(_POLL_S)


class Stall:
    """Notices when a run begins to stand still, once each time."""

    def __init__(self) -> None:
        self._told = False

    def begun(self, step_times: Iterable[float], moment: float) -> float | None:
        """Return for how long there has been no step where that was not said yet."""
        waited = stalled(tuple(step_times), moment)
        new = waited is not None and not self._told
        self._told = waited is not None
        return waited if new else None
