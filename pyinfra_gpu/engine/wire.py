"""Every remote call of a host has a deadline and a bound, and its text is harmless when it arrives.

pyinfra's own `_timeout` bounds nothing but the reading of a command's output: not the opening of
the channel, not what is sent on standard input, not the wait for the exit status, and no transfer
of a file; and it reads whatever comes, into memory. So the connector of each host that we work on
is handed these calls in the place of its own, and whoever calls it, ours or pyinfra's operations
and facts, is given up in time. A connector that is neither SSH nor this machine keeps its own way
to run a command, within the deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop
from gevent.event import Event  # type: ignore[import-untyped]
from gevent.os import nb_read  # type: ignore[import-untyped]
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
)

from pyinfra_gpu.engine import deadlines, transport
from pyinfra_gpu.engine.transport import LastingCommand, RemoteCommand, client_of, drop
from pyinfra_gpu.text import without_escapes

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

LONGEST_OUTPUT = 32 << 20
"""Bytes that a command may print; the log of a long installation comes to a tenth of that."""

_GUARDED = "pyinfra_gpu_guarded"  # in connector_data, pyinfra's scratch space of this host
_SETTLE_S = 10.0
"""Without a byte, after a command has ended: then something else holds its output. sshd tells of
the end before it has sent all; with 100 hosts on two cores the rest came more than a second later.
"""
_CHUNK = 32768
_LONGEST_LINE = 1 << 20
_LINE = 128  # bytes that a line costs beyond its text
_TICK_S = 1.0
_OUT, _ERR = "stdout", "stderr"
_T = TypeVar("_T")


class TooMuchError(OSError):
    """A host sent more than anything there can have to say."""


class _Running(Protocol):
    """A command that runs."""

    def send(self, text: str) -> None:
        """Send all of its standard input, and end that."""

    def read(self, name: str) -> bytes:
        """Return what it printed meanwhile, nothing at the end."""

    def status(self) -> int:
        """Wait for its end, and return its exit status."""

    def abandon(self) -> None:
        """Have nothing to do with it any more."""


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
        with within(given.pop("_timeout", None) or deadlines.PLAIN, "it did not answer"):
            if client_of(host.connector) is None and not isinstance(host.connector, LocalConnector):
                ok, output = own(command, print_output, print_input, **given)
                return ok, CommandOutput([_harmless(each) for each in output.combined_lines])
            call = _Call(host, most, last, print_output=print_output, print_input=print_input)
            return call.run(command, given)

    return bounded


def _harmless(line: OutputLine) -> OutputLine:
    return OutputLine(line.buffer_name, without_escapes(line.line))


class _Call:
    """One command on one host, from its first byte to its last.

    + most: bytes that it may print
    + last: a line after which nothing matters any more; None: all of it does
    """

    def __init__(
        self, host: Host, most: int, last: str | None, *, print_output: bool, print_input: bool
    ) -> None:
        self._host = host
        self._left = most
        self._most = most
        self._last = last
        self._whole = Event()
        self._print_output = print_output
        self._print_input = print_input
        self._too_much = Event()

    def run(self, command: StringCommand, given: dict[str, Any]) -> tuple[bool, CommandOutput]:
        """Run it as pyinfra would, with sudo's second try; return whether it ended well."""
        pty, stdin = given.pop("_get_pty", False), given.pop("_stdin", None)
        codes = given.pop("_success_exit_codes", None) or [0]

        def execute() -> tuple[int, CommandOutput]:
            made = make_unix_command_for_host(self._host.state, self._host, command, **given)
            if self._print_input:
                echo(f"{self._host.print_prefix}>>> {made}", err=True)
            return self._execute(made.get_raw_value(), _text(stdin), pty=pty)

        status, output = execute_command_with_sudo_retry(self._host, given, execute)  # type: ignore[arg-type]
        return status in codes, output

    def _execute(self, text: str, stdin: str, *, pty: bool) -> tuple[int, CommandOutput]:
        client = client_of(self._host.connector)
        running: _Running = _Local(text) if client is None else RemoteCommand(client, text, pty=pty)
        lines: list[OutputLine] = []
        ending = gevent.spawn(_or_error, running.status)
        readers = [gevent.spawn(self._read, running, name, lines) for name in (_OUT, _ERR)]
        try:
            running.send(stdin)
            gevent.wait([ending, self._too_much], count=1)
            self._settle(readers)
            if self._too_much.is_set():
                abandon(self._host)
                raise TooMuchError(f"it sent more than {self._most >> 10} KiB")
            status = ending.get()
        except BaseException:
            gevent.spawn(_or_error, running.abandon)  # which may wait for a peer that never answers
            raise
        finally:
            gevent.killall([ending, *readers], block=False)
        if isinstance(status, Exception):
            raise status
        return status, CommandOutput(lines)

    def _settle(self, readers: list[Any]) -> None:
        """Wait for the rest of what a command printed that has ended.

        A program that it left behind may hold its output open for ever.
        """
        over = gevent.spawn(gevent.wait, readers)
        left = self._left + 1
        while self._left < left and not self._too_much.is_set():
            left = self._left
            if gevent.wait([over, self._whole], timeout=_SETTLE_S, count=1):
                return

    def _read(self, running: _Running, name: str, lines: list[OutputLine]) -> None:
        """Take in one of the two channels, line by line, up to its end or to the bound."""
        rest = b""
        while chunk := _or_error(lambda: running.read(name)):
            if isinstance(chunk, Exception):
                break
            self._left -= len(chunk) + _LINE * chunk.count(b"\n")
            if self._left < 0:
                self._too_much.set()
                return
            *whole, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LONGEST_LINE:
                whole, rest = [*whole, rest], b""
            for each in whole:
                self._add(name, each, lines)
        if rest:
            self._add(name, rest, lines)

    def _add(self, name: str, line: bytes, lines: list[OutputLine]) -> None:
        made = _harmless(OutputLine(name, line.decode("utf-8", "backslashreplace")))
        lines.append(made)
        if name == _OUT and made.line == self._last:
            self._whole.set()
        if self._print_output:
            echo(f"{self._host.print_prefix}{made.line}", err=True)


class _Local:
    """A command on this machine."""

    def __init__(self, text: str) -> None:
        self._process = Popen(text, shell=True, stdout=PIPE, stderr=PIPE, stdin=PIPE)  # noqa: S604
        self._pipes = {_OUT: self._process.stdout, _ERR: self._process.stderr}

    def send(self, text: str) -> None:
        """See `_Running`."""
        try:
            self._process.stdin.write(text.encode())
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # it ended, or does not want to know

    def read(self, name: str) -> bytes:
        """See `_Running`."""
        return bytes(nb_read(self._pipes[name].fileno(), _CHUNK))

    def status(self) -> int:
        """See `_Running`."""
        return int(self._process.wait())

    def abandon(self) -> None:
        """See `_Running`."""
        if self._process.poll() is None:
            self._process.kill()


def _or_error(asked: Callable[[], _T]) -> _T | Exception:
    """Return what went wrong as a value: gevent would print it for everybody to see."""
    try:
        return asked()
    except Exception as error:
        return error


def _text(stdin: Any) -> str:
    """Return what goes to standard input, as pyinfra's connectors send it: whole lines."""
    if stdin is None:
        return ""
    lines = stdin.readlines() if hasattr(stdin, "readlines") else stdin
    lines = lines if isinstance(lines, list | tuple) else [lines]
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
