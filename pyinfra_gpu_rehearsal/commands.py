"""Running programs, waiting, and keeping files: what all parts of the lab are made with."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from pyinfra.api.exceptions import PyinfraError

Answer = TypeVar("Answer")
Say = Callable[[str], None]
"""Takes a sentence for the person who waits."""


class LabError(PyinfraError):
    """One sentence saying what cannot be done with the throwaway hosts, why, and the remedy.

    It is a PyinfraError so that an inventory file that raises it ends pyinfra with the sentence
    alone and not with a traceback.
    """


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


# -- files


def write(path: Path, content: str | Path, mode: int = 0o644) -> None:
    """Write a text, or what a file holds, to PATH and make the folders above it.

    + mode: who may read, write and run it
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content.read_bytes())
    path.chmod(mode)


def write_atomically(path: Path, text: str) -> None:
    """Write TEXT to PATH so that a reader sees the old or the new text, never a part."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    write(part, text)
    part.replace(path)


def point(link: Path, target: Path) -> None:
    """Make LINK a link to TARGET, whatever it was before."""
    link.unlink(missing_ok=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)


def remove_tree(path: Path) -> None:
    """Remove the folder PATH, if it is there; rm takes a fifth of what Python's own way takes."""
    run(["rm", "-rf", "--", path], purpose=f"removing {path}", timeout=1200)


def empty_folder(path: Path) -> None:
    """Make PATH an empty folder that everybody may read, whatever was there before."""
    remove_tree(path)
    path.mkdir(parents=True)
    path.chmod(0o755)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file PATH, waiting for whoever holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cache_folder() -> Path:
    """Return the folder for what is made once and used by every lab of this user."""
    default = Path.home() / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or default).absolute() / "pyinfra-gpu"


def cached(
    name: str, key: Iterable[str], build: Callable[[Path], object], say: Say, doing: str
) -> Path:
    """Return the folder of the cache that BUILD fills, having it filled where it is not there.

    + name: what the folder's name begins with; key: all that its content depends on
    + build: is given an empty folder, and may fail or be killed
    + doing: what is said meanwhile, e.g. "downloading wheels"
    """
    cache, digest = cache_folder(), hashlib.sha256("\0".join(key).encode()).hexdigest()[:12]
    folder = cache / f"{name}-{digest}"
    with locked(cache / f"{name}.lock"):
        if folder.exists():
            return folder
        for leftover in cache.glob(f"{name}-*.part"):
            remove_tree(leftover)  # of a build that was killed; no other runs under the lock
        say(f"{doing} (once) ...")
        begun = time.monotonic()
        part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".part", dir=cache))
        part.chmod(0o755)
        try:
            build(part)
            part.rename(folder)
        finally:
            remove_tree(part)
        say(f"ready after {time.monotonic() - begun:.0f} s")
    return folder
