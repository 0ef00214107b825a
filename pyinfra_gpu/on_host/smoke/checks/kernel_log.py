"""The kernel's log from a moment on: the journal by its cursor, or else the kernel's own buffer.

Reading "the last hours" would blame this test for what happened before it. Who may read neither is
told so; nothing is concluded from a log that was not read.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
from dataclasses import dataclass

_DEADLINE = 5.0
_CURSOR = re.compile(r"^-- cursor: (\S+)$", re.MULTILINE)
_KMSG = "/dev/kmsg"
_RECORD = 8192
"""More than the kernel's longest record."""
MOST_LINES = 400


@dataclass
class Cursor:
    """A place in the kernel's log; `source` is journal, kmsg or None, then `reason` says why."""

    source: str | None
    reason: str = ""
    journal: str = ""
    file: int = -1


def mark() -> Cursor:
    """Return the present end of the log."""
    code, output, error = _journalctl("--lines=1", "--show-cursor", "--quiet")
    found = _CURSOR.search(output)
    if code == 0 and found:
        return Cursor("journal", journal=found[1])
    journal = error.strip().splitlines()[0] if error.strip() else "no kernel messages in it"
    try:
        file = os.open(_KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(file, 0, os.SEEK_END)
    except OSError as problem:
        return Cursor(None, f"journal: {journal}; {_KMSG}: {problem.strerror}")
    return Cursor("kmsg", file=file)


def since(cursor: Cursor) -> list[str] | None:
    """Return the lines that came after `cursor`, at most MOST_LINES; None if it cannot be read.

    A cursor on the kernel's own buffer is used up by this.
    """
    if cursor.source == "journal":
        code, output, _ = _journalctl(f"--after-cursor={cursor.journal}", "--quiet")
        return output.splitlines()[-MOST_LINES:] if code == 0 else None
    if cursor.source == "kmsg":
        try:
            return _rest_of(cursor.file)[-MOST_LINES:]
        except OSError:
            return None
        finally:
            os.close(cursor.file)
            cursor.source, cursor.reason = None, "read already"
    return None


def _journalctl(*arguments: str) -> tuple[int, str, str]:
    command = ["journalctl", "--dmesg", "--no-pager", "--output=short-monotonic", *arguments]
    try:
        run = subprocess.run(command, capture_output=True, timeout=_DEADLINE, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return 1, "", str(problem)
    output, error = (text.decode(errors="replace") for text in (run.stdout, run.stderr))
    return run.returncode, output, error


def _rest_of(file: int) -> list[str]:
    """Read records "priority,number,microseconds,flags;text" until there are none."""
    lines: list[str] = []
    while True:
        try:
            record = os.read(file, _RECORD).decode(errors="replace")
        except BlockingIOError:
            return lines
        except OSError as problem:
            if problem.errno == errno.EPIPE:  # overwritten before it was read; the next is there
                continue
            raise
        lines.append(record.partition(";")[2].partition("\n")[0])
