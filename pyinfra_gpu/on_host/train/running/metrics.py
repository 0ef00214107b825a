"""The figures of a run, one object a step, as its ranks' lines tell them."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from ..reading import MetricReader
from ..rundir import now

LARGEST = 64 << 20  # bytes; a million steps come to less
_TIMES = 256  # of the last steps: by them it is told whether there are none any more


class Metrics:
    """The file that figures are appended to.

    + last, times: the last step, and the moments of the last ones, in this attempt
    """

    def __init__(self, path: Path, attempt: int) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(path, flags, 0o600)
        self._attempt = attempt
        self.last: dict[str, object] = {}
        self.times: deque[float] = deque(maxlen=_TIMES)
        self._told: MetricReader | None = None  # by whom; ranks that print at all print the same

    def reader(self) -> Callable[[str], None]:
        """Return what takes the lines of one rank's log."""
        reading = MetricReader()

        def read(line: str) -> None:
            metric = reading.read(line)
            if metric is None or self._told not in (None, reading):
                return
            self._told = reading
            self.last = metric.as_json()
            self.times.append(time.time())
            known = {"time": now(), "attempt": self._attempt, **self.last}
            text = json.dumps(known, allow_nan=False) + "\n"
            with contextlib.suppress(OSError):  # a full disk
                if os.fstat(self._descriptor).st_size < LARGEST:
                    os.write(self._descriptor, text.encode())

        return read

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
