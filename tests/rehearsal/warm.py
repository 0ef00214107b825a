"""Running pyinfra without importing it each time: the client of warm_server.py."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

IMPORTING_S = 300  # two seconds; a busy machine may take long
PROJECT = Path(__file__).resolve().parents[2]


class WarmProgram:
    """A process that forks a run of what imports them whenever it is asked to."""

    def __init__(self) -> None:
        self.server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("warm_server.py"))],
            cwd=PROJECT,
            env={**os.environ, "PYINFRA_PROGRESS": "off", "PYTHONPATH": search_path()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.unread = b""
        self._read(IMPORTING_S)

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        timeout: float,
        *,
        folder: Path = PROJECT,
        together: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run COMMAND and return what it printed.

        + command: its first word ends in "pyinfra" or "pyinfra-gpu"; or "python", "-c", ...
        + timeout: seconds; the run is killed then, and subprocess.TimeoutExpired raised
        + folder: where it runs
        + together: its errors among its output, as a terminal shows them
        """
        with tempfile.TemporaryDirectory() as kept:
            output, errors = Path(kept, "output"), Path(kept, "errors")
            output.touch()
            errors.touch()
            request = {"command": list(command), "environment": dict(environment)}
            request |= {"folder": str(folder), "output": str(output)}
            self._write({**request, "errors": str(output if together else errors)})
            process = int(self._read(timeout))
            try:
                code = int(self._read(timeout))
            except TimeoutError:
                os.kill(process, signal.SIGKILL)
                self._read(timeout)
                raise subprocess.TimeoutExpired(list(command), timeout) from None
            texts = [path.read_text(errors="replace") for path in (output, errors)]
            return subprocess.CompletedProcess(list(command), code, *texts)

    def _write(self, request: object) -> None:
        assert self.server.stdin is not None
        self.server.stdin.write(json.dumps(request).encode() + b"\n")
        self.server.stdin.flush()

    def _read(self, timeout: float) -> bytes:
        """Return the next line of what the server says."""
        assert self.server.stdout is not None
        while b"\n" not in self.unread:
            if not select.select([self.server.stdout], [], [], timeout)[0]:
                raise TimeoutError
            more = os.read(self.server.stdout.fileno(), 4096)
            assert more, "the process that runs pyinfra has ended"
            self.unread += more
        line, _, self.unread = self.unread.partition(b"\n")
        return line


def search_path() -> str:
    """Return PYTHONPATH with the project in it, as pytest's own `pythonpath` says."""
    return os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))


@cache
def warm_program(number: int = 0) -> WarmProgram:
    """Return the one that this process uses; it ends with its standard input.

    + number: a program runs one command at a time; another number is another program
    """
    return WarmProgram()
