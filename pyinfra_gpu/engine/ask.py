"""Asking a host something in the middle of an operation, and having the answer to judge."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS
from pyinfra.api.command import StringCommand

from pyinfra_gpu.engine.wire import guard

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

_TOLD_S = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a command said.

    + ok: whether it ended with 0
    + stdout: its lines; lines: those of both channels
    + lost: whether the connection broke; the one line says so then
    """

    ok: bool
    stdout: tuple[str, ...]
    lines: tuple[str, ...]
    lost: bool = False


def ask(
    state: State,
    host: Host,
    command: str | StringCommand,
    run_as: dict[str, Any],
    *,
    seconds: float,
    what: str | None = None,
    stream: bool = False,
    **arguments: Any,
) -> Answer:
    """Run a shell command on the host, inside a FunctionCommand, and return what it said.

    + command: POSIX shell; every value in it must already be quoted
    + run_as: pyinfra's global arguments from `pyinfra_gpu.engine.privilege`
    + seconds: after which it is given up, most often one of `pyinfra_gpu.engine.deadlines`
    + what: what it does; told now, and every half minute while it lasts
    + stream: show the command's output while it works
    + arguments: further ones of pyinfra's connector, e.g. `_stdin`

    A connection that breaks, and a host that does not answer in time, is an answer that is not ok.
    """
    # The operation's own global arguments carry the sudo password and the shell.
    ours = dict(host.current_op_global_arguments or {}) | run_as | arguments
    ours["_timeout"] = seconds
    chosen = {key: ours[key] for key in CONNECTOR_ARGUMENT_KEYS if key in ours}
    guard(host)
    try:
        with _told(host, what):
            ok, output = host.run_shell_command(
                StringCommand(command),
                print_output=stream or state.print_output,
                print_input=state.print_input,
                **chosen,
            )
    except TimeoutError as error:
        return Answer(ok=False, stdout=(), lines=(str(error),))
    except Exception as error:  # whatever the transport raises when the peer is gone
        text = f"the connection was lost ({error!r})"
        return Answer(ok=False, stdout=(), lines=(text,), lost=True)
    return Answer(
        ok=ok,
        stdout=tuple(output.stdout_lines),
        lines=tuple(line.line for line in output),
    )


@contextmanager
def _told(host: Host, what: str | None) -> Iterator[None]:
    """Say that a long command is alive: its own output is for errors."""
    if what is None:
        yield
        return
    host.log(f"{what} ...")
    started = time.monotonic()

    done = threading.Event()

    def tell() -> None:
        while not done.wait(_TOLD_S):
            host.log(f"{what}: {time.monotonic() - started:.0f} s")

    # pyinfra has replaced threads by greenlets: this one runs while we wait for the host.
    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
