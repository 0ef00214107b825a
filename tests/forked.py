"""Runs of pyinfra's and our own command line, forked from a process that has imported both.

A run that starts cold takes 1.2 s of a processor, most of it for imports; a forked one 0.2 s.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
_STREAMS = ((0, "r"), (1, "w"), (2, "w"))
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["pyinfra_cli.main", "tests.preload"])


def _become(words: list[str], environment: dict[str, str], folder: str, outputs: list[str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for descriptor, path in enumerate([os.devnull, *outputs]):
        opened = os.open(path, os.O_RDWR | os.O_APPEND)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(each, mode) for each, mode in _STREAMS)
    sys.argv = words
    ours = Path(words[0]).name == "pyinfra-gpu"
    try:
        sys.exit(import_module("pyinfra_gpu.cli" if ours else "pyinfra_cli.main").main())
    finally:
        atexit._run_exitfuncs()


class Forked:
    """A run that goes on; it offers what tests use of subprocess.Popen."""

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        *,
        folder: Path = PROJECT,
        together: bool = True,
    ) -> None:
        """Start a run of "pyinfra" or "pyinfra-gpu".

        + together: its errors come among its output, as a terminal shows them
        """
        self.args, self._kept = list(words), tempfile.TemporaryDirectory()
        self._files = [Path(self._kept.name, name) for name in ("output", "errors")]
        for each in self._files:
            each.touch()
        outputs = [str(self._files[0]), str(self._files[0 if together else 1])]
        given = (self.args, dict(environment), str(folder), outputs)
        self._process = _FORKS.Process(target=_become, args=given)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code; None while the run goes on."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit code; None while the run goes on."""
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to the run, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # its exit code is on its way
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the run, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end of the run; return its output and its errors."""
        self._process.join(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        output, errors = (each.read_text(errors="replace") for each in self._files)
        return output, errors


Process = subprocess.Popen[str] | Forked
"""A run that was started: by its program, or forked."""


def run(
    words: Sequence[str],
    environment: Mapping[str, str],
    timeout: float,
    *,
    folder: Path = PROJECT,
    together: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Fork a run, wait for its end and return it; after `timeout` seconds it is killed."""
    process = Forked(words, environment, folder=folder, together=together)
    try:
        output, errors = process.communicate(timeout)
    finally:
        process.kill()
    assert process.returncode is not None
    return subprocess.CompletedProcess(list(words), process.returncode, output, errors)
