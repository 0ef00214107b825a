"""A named pipe in the place of a file that data names is said, and never waited for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyinfra.api.exceptions import ConnectError
from pyinfra.connectors.ssh import SSHConnector

from pyinfra_gpu import whole_file
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


def connected(path: Path) -> None:
    connector = SSHConnector.__new__(SSHConnector)
    connector.data = {"ssh_config_file": str(path)}  # type: ignore[assignment,typeddict-item]
    connector.host = SimpleNamespace(name="ws1")  # type: ignore[assignment]
    transport._connect_or_say_why(connector)


READERS: dict[str, tuple[Callable[[Path], object], type[Exception]]] = {
    "known_hosts": (lambda path: transport._known("ws1", path), HostKeyError),
    "a lock": (lock.load, SpecError),
    "the configuration of ssh": (connected, ConnectError),
}


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_one_sentence(name: str, pipe: Path) -> None:
    read, error = READERS[name]
    with pytest.raises(error, match="is no regular file"):
        read(pipe)


def test_a_key_that_is_a_pipe_is_left_out(pipe: Path, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"IdentityFile {pipe}\nIdentityFile {tmp_path}/id\n", encoding="utf-8")
    read = transport.Client().parse_config("ws1", {}, ssh_config_file=str(config))
    assert read[1]["key_filename"] == [f"{tmp_path}/id"]


def test_dev_null_is_an_empty_file_and_dev_zero_is_none() -> None:
    assert transport._known("ws1", Path(os.devnull)) == []
    with pytest.raises(HostKeyError, match="is no regular file"):
        transport._known("ws1", Path("/dev/zero"))
    assert not whole_file.is_none(Path(os.devnull))
    assert not whole_file.is_none(Path("/nowhere"))
