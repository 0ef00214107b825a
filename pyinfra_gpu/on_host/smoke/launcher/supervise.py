"""Start torchrun so that everything it starts can be ended, whatever happens to whom."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .. import processes

TERM_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""
_KILL_LIMIT = 5.0
_POLL = 0.02


class Tree:
    """A command, run in its own session, with all its descendants.

    torchrun puts each rank in a session of its own, so no process group holds them all. This
    process therefore adopts orphans and finds everything by descent. If it is killed itself, the
    kernel kills the command, and the ranks ask the kernel for the same (`worker`).
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], directory: Path, log: Path
    ) -> None:
        processes.adopt_orphans()
        launcher = os.getpid()

        def before_exec() -> None:
            processes.die_with_parent()
            if os.getppid() != launcher:  # ended before the line above took effect
                os._exit(1)

        with log.open("wb") as output:
            self._command = subprocess.Popen(
                command,
                env=dict(environment),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=before_exec,  # safe: this process has one thread
            )

    @property
    def code(self) -> int | None:
        """Return the command's exit code, None while it runs."""
        return self._command.poll()

    def left(self) -> list[int]:
        """Return the processes that still run, the command and all that descend from it."""
        self._reap_orphans()
        return [
            process.pid for process in processes.descendants(os.getpid()) if process.state != "Z"
        ]

    def end(self) -> None:
        """End everything: SIGTERM, TERM_GRACE seconds later SIGKILL; returns when all are gone.

        Raises TimeoutError if a process survives SIGKILL (stuck in the kernel).
        """
        self._signal_all(signal.SIGTERM)
        self._wait(TERM_GRACE)
        limit = time.monotonic() + _KILL_LIMIT
        while self.left():
            if time.monotonic() > limit:
                raise TimeoutError(f"processes {self.left()} survive SIGKILL")
            self._signal_all(signal.SIGKILL)  # again each time: one may just have forked
            self._wait(_POLL)

    def _wait(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while self.left() and time.monotonic() < limit:
            time.sleep(_POLL)

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in self.left():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def _reap_orphans(self) -> None:
        for process in processes.descendants(os.getpid()):
            mine = process.parent == os.getpid() and process.pid != self._command.pid
            if mine and process.state == "Z":
                os.waitpid(process.pid, os.WNOHANG)
        self._command.poll()
