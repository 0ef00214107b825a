"""A named pipe in the place of a file that data names is said, and never waited for."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyinfra_gpu.engine import transport
from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.spec import lock


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """A pipe nobody writes to; whoever opens it to read is woken after ten seconds."""

    def woken(number: int, frame: object) -> None:
        raise RuntimeError("it waits for the pipe")

    path = tmp_path / "pipe-py3.12.txt"
    os.mkfifo(path)
    before = signal.signal(signal.SIGALRM, woken)
    signal.alarm(10)
    yield path
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_a_pipe_is_never_waited_for(pipe: Path) -> None:
    assert transport._lines_about("ws1", pipe) == []
    with pytest.raises(SpecError, match="is no regular file"):
        lock.load(pipe)
