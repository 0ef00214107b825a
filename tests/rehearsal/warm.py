"""Running pyinfra without importing it each time: the client of warm_server.py."""

from __future__ import annotations

import contextlib
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
        self.going: WarmRun | None = None
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
        run = self.start(command, environment, folder=folder, together=together)
        try:
            texts = run.communicate(timeout)
        except subprocess.TimeoutExpired:
            run.kill()
            run.communicate()
            raise
        assert run.returncode is not None
        return subprocess.CompletedProcess(list(command), run.returncode, *texts)

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        folder: Path = PROJECT,
        together: bool = True,
    ) -> WarmRun:
        """Begin to run COMMAND, as soon as the one before has ended, and return while it goes on.

        The parameters are those of `run`.
        """
        if self.going is not None:
            self.going.communicate()
        kept = tempfile.TemporaryDirectory()
        output, errors = Path(kept.name, "output"), Path(kept.name, "errors")
        output.touch()
        errors.touch()
        request = {"command": list(command), "environment": dict(environment)}
        request |= {"folder": str(folder), "output": str(output)}
        self._write({**request, "errors": str(output if together else errors)})
        self.going = WarmRun(self, command, int(self._read(IMPORTING_S)), kept)
        return self.going

    def _write(self, request: object) -> None:
        assert self.server.stdin is not None
        self.server.stdin.write(json.dumps(request).encode() + b"\n")
        self.server.stdin.flush()

    def ended(self, timeout: float | None) -> int | None:
        """Return the exit code of the run that goes on; None where it still does then.

        + timeout: seconds; None = as long as it takes
        """
        try:
            code = int(self._read(timeout))
        except TimeoutError:
            return None
        self.going = None
        return code

    def _read(self, timeout: float | None) -> bytes:
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


class WarmRun:
    """A run that goes on; what subprocess.Popen offers of it.

    + returncode: None until its end was seen
    """

    def __init__(
        self,
        program: WarmProgram,
        command: Sequence[str],
        process: int,
        kept: tempfile.TemporaryDirectory[str],
    ) -> None:
        self.args = list(command)
        self.pid = process
        self.returncode: int | None = None
        self._program = program
        self._kept = kept
        self._texts = ("", "")

    def poll(self) -> int | None:
        """Return its exit code, None where it goes on."""
        if self.returncode is None:
            self._end(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end, and return what it printed and its errors.

        Raises subprocess.TimeoutExpired after so many seconds.
        """
        if self.returncode is None and self._end(timeout) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self._texts

    def _end(self, timeout: float | None) -> int | None:
        self.returncode = self._program.ended(timeout)
        if self.returncode is not None:
            output, errors = (Path(self._kept.name, name) for name in ("output", "errors"))
            self._texts = (
                output.read_text(errors="replace"),
                errors.read_text(errors="replace"),
            )
            self._kept.cleanup()
        return self.returncode


Process = subprocess.Popen[str] | WarmRun
"""A run that was started: by its program, or in a fork."""


def search_path() -> str:
    """Return PYTHONPATH with the project in it, as pytest's own `pythonpath` says."""
    return os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))


@cache
def warm_program(number: int = 0) -> WarmProgram:
    """Return the one that this process uses; it ends with its standard input.

    + number: a program runs one command at a time; another number is another program
    """
    return WarmProgram()
