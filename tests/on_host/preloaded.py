"""Start programs in a Python that has imported torch already; how is in `preloaded_server`.

For tests whose point is not how a process starts or ends: starting five interpreters with torch
takes some 15 seconds of a processor's time, and forking them hardly any.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu.on_host.smoke import environment
from tests.on_host import preloaded_server

UNCOMPILED = {"TORCHDYNAMO_DISABLE": "1"}
"""A user's own switch: what is not about compiling runs without waiting for compilers. torch reads
it on import, so what compiles is forked from a Python of its own."""
COMPILED = {"TORCHDYNAMO_DISABLE": "0"}
TORCH = (
    "torch",
    "torch.distributed.run",
    "torch._dynamo",
    "torch.distributed.algorithms.ddp_comm_hooks.default_hooks",
)
"""What the processes of a smoke test import, as far as it takes long."""
COMPILER = (*TORCH, "torch._inductor.compile_fx", "torch._inductor.metrics")
"""The same of those that compile."""
_PADDING = "-" * 4096
"""Room for the command lines of its children."""


@dataclass
class Started:
    """A process that was started; what of `subprocess.Popen` the tests use, and as there."""

    arguments: Sequence[str]
    pid: int
    connection: socket.socket
    returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it has ended, None while it runs."""
        if self.returncode is None and select.select([self.connection], [], [], 0)[0]:
            answer = self.connection.recv(4)
            status = int.from_bytes(answer, "big") if answer else signal.SIGKILL
            self.returncode = os.waitstatus_to_exitcode(status)
            self.connection.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return how it has ended. Raises TimeoutExpired after seconds."""
        if self.poll() is None and not select.select([self.connection], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(list(self.arguments), timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            self.connection.sendall(bytes([number]))

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


@dataclass(frozen=True)
class Preloaded:
    """The preloaded Python; `python` is the one that it is a fork of.

    + variables: with which it has imported, and all that it starts runs
    """

    python: str
    connections: socket.socket
    variables: Mapping[str, str]

    def start(
        self,
        arguments: Sequence[str],
        *,
        stdout: int,
        stdin: int | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Started:
        """Start it as `[python, *arguments]` would be.

        + stdout: of both outputs; stdin: None = there is no input
        """
        asked = {
            "arguments": [*arguments],
            "environment": {**(os.environ if env is None else env), **self.variables},
            "cwd": str(cwd or Path.cwd()),
        }
        text = json.dumps(asked).encode()
        connection, other = socket.socketpair()
        with other:
            socket.send_fds(self.connections, [b"c"], [other.fileno()])
        with Path(os.devnull).open() as nothing:
            files = [nothing.fileno() if stdin is None else stdin, stdout, stdout]
            socket.send_fds(connection, [len(text).to_bytes(4, "big")], files)
        connection.sendall(text)
        answer = connection.recv(4)
        assert answer, "the preloaded Python has ended"
        return Started(arguments, int.from_bytes(answer, "big"), connection)


@contextlib.contextmanager
def serving(
    python: str, modules: Sequence[str] = TORCH, variables: Mapping[str, str] = UNCOMPILED
) -> Iterator[Preloaded]:
    """Start a `python` that imports `modules`; at the end, all that it has started is killed.

    + variables: whether torch compiles, UNCOMPILED or COMPILED
    """
    ours, others = socket.socketpair()
    with others:
        server = subprocess.Popen(
            [python, preloaded_server.__file__, str(others.fileno()), ",".join(modules), _PADDING],
            stdin=subprocess.DEVNULL,
            env={**environment.for_cpu(os.environ), **variables},
            pass_fds=[others.fileno()],
            start_new_session=True,  # a Ctrl-C is for the tests
        )
    with server, ours:
        yield Preloaded(python, ours, variables)
