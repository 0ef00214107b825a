"""A named pipe in the place of a file that data names is said, and never waited for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyinfra_gpu.engine import transport
from pyinfra_gpu.engine.transport import HostKeyError
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


READERS: dict[str, tuple[Callable[[Path], object], type[Exception]]] = {
    "known_hosts": (lambda path: transport._lines_about("ws1", path), HostKeyError),
    "a lock": (lock.load, SpecError),
}


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_one_sentence(name: str, pipe: Path) -> None:
    read, error = READERS[name]
    with pytest.raises(error, match="is no regular file"):
        read(pipe)


def test_dev_null_is_an_empty_file_and_dev_zero_is_none() -> None:
    assert transport._lines_about("ws1", Path(os.devnull)) == []
    with pytest.raises(HostKeyError, match="is no regular file"):
        transport._lines_about("ws1", Path("/dev/zero"))
