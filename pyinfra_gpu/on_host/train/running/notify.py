"""What the supervisor tells systemd, and asks of it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from pathlib import Path

_ANSWER_S = 0.3  # of logind: what it refuses it refuses at once


def tell(text: str) -> None:
    """Tell the user manager, as sd_notify(3) does: "READY=1", "STATUS=..."."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.connect(f"\0{address[1:]}" if address[0] == "@" else address)
        channel.sendall(text.encode())


class Inhibitor:
    """A lock that blocks a shutdown while this process lives, where logind gives it one."""

    def __init__(self, run: str) -> None:
        words = ("systemd-inhibit", "--what=shutdown", "--mode=block", "--who=train")
        try:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                [*words, f"--why=training run {run}", "cat"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            self._process = None
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_ANSWER_S)

    def refused(self) -> bool:
        """Tell whether there is no such lock; logind asks polkit, which may not be there."""
        return self._process is None or self._process.poll() is not None

    def pids(self) -> list[int]:
        """Return its processes, which are not part of the run."""
        if self._process is None:
            return []
        own = self._process.pid
        try:
            below = Path(f"/proc/{own}/task/{own}/children").read_text(encoding="ascii").split()
        except OSError:
            below = []
        return [own, *map(int, below)]

    def release(self) -> None:
        """Let the machine shut down."""
        if self._process is None:
            return
        if self._process.stdin:
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
