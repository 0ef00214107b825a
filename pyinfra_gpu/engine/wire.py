"""Every remote call of a host has a deadline and a bound, and its text is harmless when it arrives.

pyinfra's own `_timeout` bounds nothing but the reading of a command's output: not the opening of
the channel, not what is sent on standard input, not the wait for the exit status, and no transfer
of a file; and it reads whatever comes, into memory. So the connector of each host that we work on
is handed these calls in the place of its own: pyinfra's, within a deadline, over a paramiko client
whose `exec_command` brings no more than it may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop
from gevent.subprocess import PIPE, Popen  # type: ignore[import-untyped]
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS
from pyinfra.api.command import StringCommand
from pyinfra.api.output import echo
from pyinfra.connectors.local import LocalConnector
from pyinfra.connectors.util import (
    CommandOutput,
    OutputLine,
    execute_command_with_sudo_retry,
    make_unix_command_for_host,
    read_output_buffers,
)

from pyinfra_gpu.engine import deadlines, transport
from pyinfra_gpu.engine.transport import Bound, LastingCommand, client_of, drop
from pyinfra_gpu.text import without_escapes

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

LONGEST_OUTPUT = 32 << 20
"""Bytes that a command may print; the log of a long installation comes to a tenth of that."""

_GUARDED = "pyinfra_gpu_guarded"  # in connector_data, pyinfra's scratch space of this host
_TICK_S = 1.0


class TooMuchError(OSError):
    """A host sent more than anything there can have to say."""


def guard(host: Host) -> None:
    """Hand this host's connector calls that are bounded, if it does not have them yet."""
    if host.connector_data.get(_GUARDED) is host.connector:
        return
    connector: Any = host.connector
    host.connector_data[_GUARDED] = connector
    if own := getattr(connector, "run_shell_command", None):
        connector.run_shell_command = _bounded_command(host, own)
    for name in ("put_file", "get_file"):
        if own := getattr(connector, name, None):
            setattr(connector, name, _bounded_transfer(own))


def abandon(host: Host) -> None:
    """End a host's connection without a farewell, and without waiting for anything."""
    gevent.spawn(_or_error, lambda: drop(host.connector))


def start(host: Host, command: str, *, seconds: float) -> LastingCommand | None:
    """Start a program on a host that lasts beside the others; None where the connector has none.

    + command: as a shell takes it, with sudo and all
    + seconds: for its beginning; what is then read from it is the caller's to bound, by `within`

    Raises OSError where the connection is gone, or nothing begins within that time.
    """
    with within(seconds, "no program began"):
        return transport.start(host.connector, command)


def as_run(state: State, host: Host, text: str, run_as: dict[str, Any]) -> str:
    """Return a command with what makes it another user's, as `start` takes it; see `as_user`."""
    return str(as_user(state, host, text, run_as).get_raw_value())


def as_user(state: State, host: Host, text: str, run_as: dict[str, Any]) -> StringCommand:
    """Return a command with what makes it another user's, to be part of another one.

    + text: POSIX shell; every value in it must already be quoted
    + run_as: pyinfra's global arguments from `pyinfra_gpu.engine.privilege`
    """
    ours = dict(host.current_op_global_arguments or {}) | run_as
    chosen = {key: ours[key] for key in CONNECTOR_ARGUMENT_KEYS if key in ours}
    for key in ("_timeout", "_get_pty", "_stdin", "_success_exit_codes"):
        chosen.pop(key, None)
    return make_unix_command_for_host(state, host, StringCommand(text), **chosen)


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """Give up what is inside after so many seconds, whatever it is waiting for.

    Time in which nothing at all can go on does not count: pyinfra asks for a password of sudo's
    by a call that stops every host's work, and nobody has to type against the clock.

    Raises TimeoutError, an OSError, which says what took too long.
    """
    waiting, over = gevent.getcurrent(), gevent.Timeout()  # never started: something to throw
    tick = min(_TICK_S, seconds / 4)
    left = seconds

    def count() -> None:
        nonlocal left
        left -= tick
        if left <= 0:
            waiting.throw(over)

    timer = gevent.get_hub().loop.timer(tick, tick)
    timer.start(count)
    try:
        yield
    except gevent.Timeout as ended:
        if ended is not over:
            raise
        raise TimeoutError(f"{what} within {seconds:g} s") from None
    finally:
        timer.close()


def _bounded_transfer(transfer: Callable[..., bool]) -> Callable[..., bool]:
    def bounded(*args: Any, **arguments: Any) -> bool:
        with within(arguments.get("_timeout") or deadlines.PLAIN, "a file did not go over"):
            return transfer(*args, **arguments)

    return bounded


def _bounded_command(host: Host, own: Callable[..., Any]) -> Callable[..., Any]:
    def bounded(
        command: StringCommand, print_output: bool = False, print_input: bool = False, **given: Any
    ) -> tuple[bool, CommandOutput]:
        most, last = given.pop("_most", None) or LONGEST_OUTPUT, given.pop("_last", None)
        seconds = given.pop("_timeout", None) or deadlines.PLAIN
        bound, client = Bound(most, last), client_of(host.connector)
        called = own
        if client is not None:  # what pyinfra calls to begin a command
            client.exec_command = lambda text, get_pty=False: transport.run(  # type: ignore[method-assign,assignment,misc]
                client, text, bound, pty=get_pty
            )
        elif isinstance(host.connector, LocalConnector):
            called = partial(_run_here, host)
        try:
            with within(seconds, "it did not answer"):
                ok, output = called(command, print_output, print_input, **given)
        except BaseException:
            if bound.channel:  # which may wait for a peer that never answers
                gevent.spawn(_or_error, bound.channel.close)
            raise
        if bound.exceeded:
            raise TooMuchError(f"it sent more than {most >> 10} KiB")
        lines = (without_escapes(each.line) for each in output.combined_lines)
        names = (each.buffer_name for each in output.combined_lines)
        return ok, CommandOutput([*map(OutputLine, names, lines)])

    return bounded


def _run_here(
    host: Host, command: StringCommand, print_output: bool, print_input: bool, **given: Any
) -> tuple[bool, CommandOutput]:
    """Run a command on this machine as pyinfra does, whatever bytes it prints."""
    stdin, codes = given.pop("_stdin", None), given.pop("_success_exit_codes", None) or [0]
    given.pop("_get_pty", None)

    def execute() -> tuple[int, CommandOutput]:
        made = make_unix_command_for_host(host.state, host, command, **given)
        if print_input:
            echo(f"{host.print_prefix}>>> {made}", err=True)
        text = {"encoding": "utf-8", "errors": "backslashreplace"}
        pipes = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}
        process = Popen(made.get_raw_value(), shell=True, **pipes, **text)  # noqa: S604
        try:
            with suppress(BrokenPipeError):  # it ended, or does not want to know
                lines = stdin.readlines() if hasattr(stdin, "readlines") else stdin or []
                for line in lines if isinstance(lines, list | tuple) else [lines]:
                    process.stdin.write(line if line.endswith("\n") else f"{line}\n")
                process.stdin.close()
            output = read_output_buffers(
                map(without_escapes, process.stdout),
                map(without_escapes, process.stderr),
                timeout=None,
                print_output=print_output,
                print_prefix=host.print_prefix,
            )
            return int(process.wait()), output
        finally:
            if process.poll() is None:
                process.kill()

    status, output = execute_command_with_sudo_retry(host, given, execute)  # type: ignore[arg-type]
    return status in codes, output


def _or_error(asked: Callable[[], object]) -> object:
    """Return what went wrong as a value: gevent would print it for everybody to see."""
    try:
        return asked()
    except Exception as error:
        return error
