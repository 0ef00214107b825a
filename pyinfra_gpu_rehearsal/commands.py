"""Running programs and waiting, and saying in one sentence what went wrong."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

from pyinfra_gpu_rehearsal.errors import LabError

Answer = TypeVar("Answer")
Say = Callable[[str], None]
"""Takes a sentence for the person who waits."""


def last_line(text: str) -> str:
    """Return the last line of TEXT that says something, at most 300 characters of it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def search_path(path: str) -> str:
    """Return PATH with the folders of the system's own programs, which users may not have in it."""
    own = [folder for folder in ("/usr/sbin", "/sbin") if folder not in path.split(os.pathsep)]
    return os.pathsep.join([path, *own])


def run(
    command: Sequence[str | Path],
    *,
    purpose: str,
    stdin: str | Path = "",
    env: Mapping[str, str] | None = None,
    timeout: float = 120,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run COMMAND to its end and return what it printed.

    + purpose: what the command is for, put into the error ("PURPOSE failed: last line").
    + stdin: what the command can read, a text or a file
    + timeout: seconds

    Raises LabError where the program is missing, fails (with check) or takes too long.
    """
    words = [str(word) for word in command]
    given = os.environ if env is None else env
    full = {**given, "PATH": search_path(given.get("PATH", os.defpath))}
    with stdin.open("rb") if isinstance(stdin, Path) else nullcontext() as file:
        source: dict[str, Any] = {"stdin": file} if file else {"input": stdin}
        try:
            done = subprocess.run(
                words, **source, capture_output=True, text=True, errors="replace", env=full,
                timeout=timeout, check=False,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise LabError(f"{purpose} failed: the program {words[0]} is not installed") from error
        except subprocess.TimeoutExpired as error:
            late = f"{words[0]} took longer than {timeout:g} s"
            raise LabError(f"{purpose} failed: {late}") from error
    if check and done.returncode != 0:
        said = last_line(done.stderr or done.stdout)
        raise LabError(f"{purpose} failed: {words[0]} exit {done.returncode}: {said}")
    return done


def until(seen: Callable[[], Answer], timeout: float, every: float = 0.01) -> Answer:
    """Ask again and again until the answer is true, and return the last answer.

    + timeout: seconds, after which it is given up; every: seconds from one question to the next
    """
    limit = time.monotonic() + timeout
    while not (answer := seen()) and time.monotonic() < limit:
        time.sleep(every)
    return answer


def write(path: Path, content: str | Path, mode: int = 0o644) -> None:
    """Write a text, or what a file holds, to PATH and make the folders above it.

    + mode: who may read, write and run it
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content.read_bytes())
    path.chmod(mode)


def point(link: Path, target: Path) -> None:
    """Make LINK a link to TARGET, whatever it was before."""
    link.unlink(missing_ok=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)


def remove_tree(path: Path) -> None:
    """Remove the folder PATH, if it is there; rm takes a fifth of what Python's own way takes."""
    run(["rm", "-rf", "--", path], purpose=f"removing {path}", timeout=1200)
