"""Running the programs of a build: all that they print is in the log."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from .errors import BuildError, StoppedError

_TAIL = 400
"""Lines that are kept of what a program printed, to find its first error in."""

_ERROR = re.compile(
    r"(?i)(^|[\s:\]])(fatal error|error|undefined reference|killed signal|no space left"
    r"|cannot find|failed|fatal)\b"
    r"|^(?-i:[\w.]{0,80}(?:Error|Exception)): "  # what ends a traceback of Python's
)
_AFTERWARDS = re.compile(
    r"^(-- |ninja: build stopped|make(\[\d+\])?: \*\*\*|FAILED: |CMake Error: (?:CMAKE|Generator)"
    r"|-- Configuring incomplete|subprocess\.CalledProcessError)"
)
_NAME = re.compile(r"^\w+(?: \(ADVANCED\))?$")


class Commands:
    """Starts programs one after the other, and ends the one that runs when it is asked to."""

    def __init__(self, log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        self.environment = dict(environment)
        self._running: subprocess.Popen[str] | None = None
        self.stopped = False

    def stop(self) -> None:
        """End the program that runs, and start no other."""
        self.stopped = True
        if self._running is not None:
            _signal(self._running, signal.SIGTERM)

    def run(
        self,
        words: Sequence[str],
        *,
        what: str,
        cwd: Path | None = None,
        more: Mapping[str, str] | None = None,
        hear: Callable[[str], None] = lambda line: None,
    ) -> list[str]:
        """Run a program; return the last lines that it printed.

        + what: what it does, for the sentence where it fails, e.g. "configuring"
        + more: variables beside those of all programs
        + hear: is given each line

        Raises BuildError where it fails, with the first error first, and StoppedError.
        """
        status, lines = self.tried(words, cwd=cwd, more=more, hear=hear)
        if status != 0:
            raise failure(what, status, lines)
        return lines

    def tried(
        self,
        words: Sequence[str],
        *,
        cwd: Path | None = None,
        more: Mapping[str, str] | None = None,
        hear: Callable[[str], None] = lambda line: None,
    ) -> tuple[int, list[str]]:
        """Run a program; return its exit status and the last lines that it printed."""
        if self.stopped:
            raise StoppedError
        kept: deque[str] = deque(maxlen=_TAIL)
        with self._log.open("a", encoding="utf-8", errors="replace") as log:
            log.write(f"+ {' '.join(words)}\n")
            log.flush()
            try:
                self._running = subprocess.Popen(
                    [*words], cwd=cwd, env={**self.environment, **(more or {})}, text=True,
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    errors="replace", start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise BuildError(f"{words[0]} cannot be run: {error.strerror}") from error
            try:
                status = self._heard(self._running, log.write, kept, hear)
            finally:
                self._running = None
        if self.stopped:
            raise StoppedError
        return status, [*kept]

    def _heard(
        self,
        running: subprocess.Popen[str],
        write: Callable[[str], object],
        kept: deque[str],
        hear: Callable[[str], None],
    ) -> int:
        assert running.stdout is not None  # noqa: S101 (it is a pipe)
        try:
            for line in running.stdout:
                write(line)
                kept.append(line.rstrip("\n"))
                hear(line.rstrip("\n"))
            return running.wait()
        except BaseException:
            _signal(running, signal.SIGKILL)
            raise


def _signal(running: subprocess.Popen[str], number: int) -> None:
    """Signal a program and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(running.pid, number)


def failure(what: str, status: int, lines: Sequence[str]) -> BuildError:
    """Return the error of a program that failed: its first error, and what stands around it."""
    first = first_error(lines)
    shown = tuple(lines[first : first + 12]) if lines else ()
    quoted = _said(shown) if shown else ""
    said = quoted or f"it ended with status {status} and said nothing"
    return BuildError(f"{what} failed: {said}", shown, quoted)


def _said(shown: Sequence[str]) -> str:
    """Return an error's line; where that announces names, as CMake's NOTFOUND does, the first."""
    line = shown[0].strip()[:300]
    if not line.endswith("NOTFOUND."):
        return line
    named = next((each.strip() for each in shown[1:] if _NAME.match(each)), "")
    return f"{line} {named}".strip()


def first_error(lines: Sequence[str]) -> int:
    """Return where the first error stands: what follows it is most often its consequence."""
    for number, line in enumerate(lines):
        if _ERROR.search(line) and not _AFTERWARDS.search(line):
            return number
    return max(len(lines) - 12, 0)
