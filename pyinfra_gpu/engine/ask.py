"""Every command on a host has a deadline and a bound, and its text is harmless when it arrives.

pyinfra's own `_timeout` bounds nothing but the reading of a command's output: not the opening of
the channel, not what is sent on standard input, not the wait for the exit status; and it reads
whatever comes, into memory. So what our operations run they run by `run` and `start`. Files go
through such programs too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop
from gevent.subprocess import PIPE, STDOUT, Popen  # type: ignore[import-untyped]
from paramiko import Channel
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS, pop_global_arguments
from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host
from pyinfra.api.output import echo
from pyinfra.api.state import State
from pyinfra.connectors import util
from pyinfra.connectors.local import LocalConnector
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.util import CommandOutput

from pyinfra_gpu.engine import transport
from pyinfra_gpu.engine.deadlines import within
from pyinfra_gpu.text import without_escapes

LONGEST_OUTPUT = 32 << 20  # bytes that a command may print; a long installation's log has a tenth
SETTLE_S = 10.0  # without a byte after a command's end: then something else holds its output
_TOLD_S = 30.0
_CHUNK = 32768
_LONGEST_LINE = 1 << 20  # bytes
_LINE = 128  # bytes that a line costs beyond its text
_NOT_OURS = ("_timeout", "_get_pty")


class TooMuchError(OSError):
    """A host sent more than anything there can have to say."""


class Program:
    """A program that works on a host; what it prints are lines, bounded and harmless."""

    def __init__(self, host: Host, text: str, most: int, *, as_one: bool = False):
        """Begin it.

        + text: as a shell takes it, with sudo and all
        + most: bytes that it may print; at one more the connection is dropped
        + as_one: what it prints as errors comes with the rest

        As long as the peer likes: whoever calls this has a deadline. Raises OSError where the
        connection is gone.
        """
        self._host, self._most, self._left = host, most, most
        self._channel = _begin(host.connector, text, as_one)
        self._open = True

    @property
    def stands(self) -> bool:
        """Whether something can still be said to it."""
        return self._open and not self._channel.closed

    def say(self, data: bytes) -> bool:
        """Write to its standard input; return whether it is still there."""
        with suppress(OSError, EOFError):
            self._channel.sendall(data)
            return self.stands
        return False

    def end_input(self) -> None:
        """Let it come to the end of its standard input."""
        with suppress(OSError, EOFError):
            self._channel.shutdown_write()

    def close(self) -> None:
        """End it, without waiting for a peer that may never answer."""
        self._open = False
        _beside(self._channel.close)

    def lines(self, *, errors: bool = False) -> Iterator[str]:
        """Yield what it prints, line by line. Where that is too much, it ends."""
        receive = self._channel.recv_stderr if errors else self._channel.recv
        rest = b""
        while chunk := self.read(receive):
            *lines, rest = (rest + chunk).split(b"\n")
            self._left -= _LINE * len(lines)
            if len(rest) > _LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            yield from map(_text, lines)
        if rest:
            yield _text(rest)

    def read(self, receive: Callable[[int], bytes] | None = None) -> bytes:
        """Return what it has printed by now, at its end b""; its errors are passed over."""
        try:
            chunk = (receive or self._channel.recv)(_CHUNK)
        except (OSError, EOFError):
            return b""
        self._left -= len(chunk)
        if self._left >= 0:
            return chunk
        abandon(self._host)
        self.close()
        return b""

    def ended(self) -> int:
        """Return how it ended. Raises TooMuchError where it printed more than it may."""
        if self._left < 0:
            raise TooMuchError(f"it sent more than {self._most >> 10} KiB")
        return self._channel.recv_exit_status()

    def heard(self, stdin: str | None, *, show: bool) -> tuple[int, CommandOutput]:
        """Let it work to its end; return how it ended, and what it printed."""
        settling = _beside(self._settle)
        try:
            if stdin:
                self.say(f"{stdin}\n".encode())
            self.end_input()
            output = util.read_output_buffers(
                *(self.lines(), self.lines(errors=True)),
                timeout=None,
                print_output=show,
                print_prefix=self._host.print_prefix,
            )
            return self.ended(), output
        finally:
            settling.kill(block=False)
            self.close()

    def _settle(self) -> None:
        """Close its channel where it has ended, and no more comes of what it printed.

        A program that it left behind may hold its output open for ever. sshd tells of the end
        before it has sent all; with 100 hosts on two cores the rest came more than a second later.
        """
        self._channel.recv_exit_status()
        before = self._left + 1
        while self._left < before:
            before = self._left
            gevent.sleep(SETTLE_S)
        self._channel.close()


class _Here:
    """A program on this machine, with the calls of paramiko's channel."""

    def __init__(self, text: str, as_one: bool) -> None:
        pipes = {"stdin": PIPE, "stdout": PIPE, "stderr": STDOUT if as_one else PIPE, "bufsize": 0}
        self._process = process = Popen(text, shell=True, **pipes)  # noqa: S604 - as pyinfra does
        self.recv, self.recv_exit_status = process.stdout.read, process.wait
        self.recv_stderr = process.stderr and process.stderr.read
        self.shutdown_write = process.stdin.close

    @property
    def closed(self) -> bool:
        return self._process.poll() is not None

    def sendall(self, data: bytes) -> None:
        while data:
            data = data[self._process.stdin.write(data) :]

    def close(self) -> None:
        if not self.closed:
            self._process.kill()
        for each in filter(None, (self._process.stdin, self._process.stdout, self._process.stderr)):
            each.close()


def _begin(connector: object, text: str, as_one: bool) -> Channel:
    if isinstance(connector, LocalConnector):
        return cast("Channel", _Here(text, as_one))
    connection = transport.transport_of(connector)
    if connection is None or not connection.is_active():
        raise OSError("the connection is gone")
    try:
        channel = connection.open_session()
        channel.set_combine_stderr(as_one)
        channel.exec_command(transport.one_line(text))
    except Exception as error:  # whatever paramiko stumbled over in what the peer sent
        raise OSError(f"the host runs no command ({error or 'it hung up'})") from error
    return channel


def abandon(host: Host) -> None:
    """End a host's connection without a farewell, and without waiting for anything."""
    _beside(lambda: transport.drop(host.connector))


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a command said.

    + ok: whether it ended with 0
    + stdout: its lines; lines: those of both channels
    + lost: why it was not heard to its end, a clause: it took too long, or the connection broke
    """

    ok: bool
    stdout: tuple[str, ...]
    lines: tuple[str, ...]
    lost: str = ""


def run(
    state: State,
    host: Host,
    command: str,
    run_as: dict[str, Any],
    *,
    seconds: float,
    most: int = LONGEST_OUTPUT,
    show: bool = False,
    **arguments: Any,
) -> Answer:
    """Run a command on a host as pyinfra does, and return what it said.

    + command: POSIX shell; every value in it must already be quoted
    + run_as: pyinfra's global arguments, over those of the operation and of the host's data
    + seconds: after which it is given up; + most: bytes that it may print
    + show: show what it prints while it works
    + arguments: further ones of pyinfra's connector, e.g. `_stdin`, a text

    Raises OSError where it takes longer, or prints more, and whatever a lost connection raises.
    """
    show, whole = show or state.print_output, StringCommand(command)
    given = _arguments(state, host, run_as | arguments)
    with within(seconds, "it did not answer"):
        if not _lasts(host):
            ok, output = host.run_shell_command(
                whole, print_output=show, print_input=state.print_input, **given
            )
        else:
            stdin, codes = given.pop("_stdin", None), given.pop("_success_exit_codes", None)

            def execute() -> tuple[int, CommandOutput]:
                made = util.make_unix_command_for_host(state, host, whole, **given)
                if state.print_input:
                    echo(f"{host.print_prefix}>>> {made}", err=True)
                return Program(host, made.get_raw_value(), most).heard(stdin, show=show)

            status, output = util.execute_command_with_sudo_retry(host, given, execute)  # type: ignore[arg-type]
            ok = status in (codes or [0])
    said = [(line.buffer_name, without_escapes(line.line)) for line in output]
    stdout = tuple(line for name, line in said if name == "stdout")
    return Answer(ok=ok, stdout=stdout, lines=tuple(line for _, line in said))


def ask(
    state: State,
    host: Host,
    command: str,
    run_as: dict[str, Any],
    *,
    seconds: float,
    what: str | None = None,
    **arguments: Any,
) -> Answer:
    """Run a command on a host inside a FunctionCommand: a host that is lost is an answer, too.

    + what: what it does; told now, and every half minute while it lasts
    + the others: as in `run`; most often one of `deadlines` as seconds
    """
    teller = gevent.spawn(_tell, host, what) if what else None
    try:
        answer = run(state, host, command, run_as, seconds=seconds, **arguments)
    except Exception as error:  # whatever the transport raises when the peer is gone
        late = isinstance(error, TimeoutError)
        why = str(error) if late else f"the connection was lost ({error!r})"
        return Answer(ok=False, stdout=(), lines=(why,), lost=why)
    finally:
        if teller is not None:
            teller.kill(block=False)
    connection = transport.transport_of(host.connector)
    if connection is not None and not connection.is_active():  # it died under the command
        return replace(answer, lost="the connection was lost")
    return answer


def _tell(host: Host, what: str) -> None:
    """Say that a long command is alive: its own output is for errors."""
    started = time.monotonic()
    host.log(f"{what} ...")
    while True:
        gevent.sleep(_TOLD_S)
        host.log(f"{what}: {time.monotonic() - started:.0f} s")


def start(
    state: State,
    host: Host,
    text: str,
    run_as: dict[str, Any],
    *,
    seconds: float,
    most: int,
    as_one: bool = True,
) -> Program | None:
    """Start a program that lasts beside the others; None where the connector has no such.

    + text, run_as, most: as in `run`; as_one: what it prints as errors comes with the rest
    + seconds: for its beginning; what is then read from it is the caller's to bound, by `within`

    Raises OSError where the connection is gone, or nothing begins within that time.
    """
    if not _lasts(host):
        return None
    given = _arguments(state, host, run_as)
    given = {key: given[key] for key in given if key not in ("_stdin", "_success_exit_codes")}
    command = util.make_unix_command_for_host(state, host, StringCommand(text), **given)
    with within(seconds, "no program began"):
        return Program(host, command.get_raw_value(), most, as_one=as_one)


def _lasts(host: Host) -> bool:
    return isinstance(host.connector, SSHConnector | LocalConnector)


def _arguments(state: State, host: Host, given: dict[str, Any]) -> dict[str, Any]:
    """Return the connector's arguments; those of the operation carry sudo's password, the shell."""
    known: Any = host.current_op_global_arguments
    if known is None:  # outside of any operation
        known, _ = pop_global_arguments(state, host, dict(given))
    ours = {**known, **given}
    keys = (each for each in CONNECTOR_ARGUMENT_KEYS if each not in _NOT_OURS)
    return {key: ours[key] for key in keys if key in ours}


def _text(line: bytes) -> str:
    return without_escapes(line.decode("utf-8", "backslashreplace"))


def _beside(asked: Callable[[], object]) -> Any:
    """Do something in a greenlet of its own, which would print its error for everybody to see."""

    def quietly() -> None:
        with suppress(Exception):
            asked()

    return gevent.spawn(quietly)
