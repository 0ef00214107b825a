"""Start programs from a small process in place of this one.

pytest with all tests loaded is large, and pyinfra has gevent start its processes: by copying it.
That takes 12 ms of a processor for each; a small process that nobody has changed takes one.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any


def run(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[Any]:
    """Do what `subprocess.run` does, in the environment and the folder that this process has now.

    + options: those of `subprocess.run`; output is either captured or the small process's own
    """
    given = {"env": dict(os.environ), "cwd": Path.cwd(), **options}
    starter = _starter(os.getpid())
    assert starter.stdin is not None
    assert starter.stdout is not None
    pickle.dump(([str(word) for word in command], given), starter.stdin)
    starter.stdin.flush()
    answer = pickle.load(starter.stdout)
    if isinstance(answer, Exception):
        raise answer
    assert isinstance(answer, subprocess.CompletedProcess)
    return answer


@cache
def _starter(_: int) -> subprocess.Popen[bytes]:
    """The small process of this one; it ends with its standard input."""
    words = [sys.executable, "-I", "-S", __file__]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def serve() -> None:
    """Start what is asked for until nobody can ask any more."""
    # The programs get neither: they would read requests, and write among the answers.
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    while True:
        try:
            command, options = pickle.load(requests)
        except (EOFError, KeyboardInterrupt):
            return
        answer: object
        try:
            answer = subprocess.run(command, **options)
        except (OSError, subprocess.SubprocessError) as error:
            answer = error
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    serve()
