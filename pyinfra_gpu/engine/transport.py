"""What is done over pyinfra's connections beside what pyinfra does: commands, the end of one.

All that knows paramiko is here, in `connection`, in `host_keys` and in `login`.
"""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import suppress
from functools import partial
from typing import Any

import paramiko
from pyinfra.connectors.local import LocalConnector

from pyinfra_gpu.engine import host_keys, login
from pyinfra_gpu.engine.connection import DEAD_PEER_S, make_transport
from pyinfra_gpu.engine.login_shell import one_line
from pyinfra_gpu.engine.turns import LOGINS, Turns

_CHUNK = 32768
_LONGEST_LINE = 65536  # bytes

host_keys.install()
login.install()


def is_alive(connector: object) -> bool:
    """Tell whether a pyinfra connector's connection still stands; one without SSH always does.

    When a connection dies under a command, pyinfra reports the command as failed, like any other.
    """
    client = client_of(connector)
    if client is None:
        return True
    transport = client.get_transport()
    return transport is not None and transport.is_active()


def client_of(connector: object) -> paramiko.SSHClient | None:
    """Return a pyinfra connector's SSH client; None where it has none."""
    client = getattr(connector, "client", None)
    return client if isinstance(client, paramiko.SSHClient) else None


def drop(connector: object) -> None:
    """End a connector's connection without a farewell, and without waiting."""
    client = client_of(connector)
    transport = client.get_transport() if client else None
    if transport is not None:
        transport.sock.close()


def _begun(
    client: paramiko.SSHClient, text: str, *, pty: bool = False, as_one: bool = False
) -> paramiko.Channel:
    """Return the channel of a command that was begun.

    + as_one: what it prints as errors comes with the rest
    """
    transport = client.get_transport()
    if transport is None or not transport.is_active():
        raise OSError("the connection is gone")
    try:
        channel = transport.open_session()
        channel.set_combine_stderr(as_one)
        if pty:
            channel.get_pty()
        channel.exec_command(one_line(text))
    except (paramiko.SSHException, EOFError) as error:
        raise OSError(f"the host runs no command ({error or 'it hung up'})") from error
    return channel


class RemoteCommand:
    """A command that runs over SSH.

    Its methods wait as long as the peer likes: whoever calls them has a deadline.

    Raises OSError where the connection is gone.
    """

    def __init__(self, client: paramiko.SSHClient, text: str, *, pty: bool = False) -> None:
        self._channel = _begun(client, text, pty=pty)

    def send(self, text: str) -> None:
        """Send all of its standard input, and end that; it may have ended before."""
        try:
            self._channel.sendall(text.encode())
            self._channel.shutdown_write()
        except OSError:
            if not self._channel.closed:
                raise

    def read(self, name: str) -> bytes:
        """Return what it printed meanwhile on "stdout" or "stderr", nothing at the end."""
        receive = self._channel.recv if name == "stdout" else self._channel.recv_stderr
        return receive(_CHUNK)

    def status(self) -> int:
        """Wait for its end, and return its exit status, -1 where there is none."""
        return self._channel.recv_exit_status()

    def abandon(self) -> None:
        """Close its channel; what it does over there, it may go on to do."""
        self._channel.close()


class LastingCommand:
    """A program that works on a host beside the others, for as long as the connection stands.

    To begin it, and to end it, may take as long as the peer likes; see `wire.start`.
    """

    def __init__(self, end: paramiko.Channel | socket.socket) -> None:
        self._end = end
        self._rest = b""
        self.stands = True

    def line(self, seconds: float) -> str | None:
        """Return the next line that it prints, "" after so many seconds; None where it ended.

        Lines with nothing on them are passed over.
        """
        self._end.settimeout(seconds)
        while b"\n" not in self._rest:
            try:
                more = self._end.recv(_LONGEST_LINE)
            except TimeoutError:
                return ""
            except (OSError, EOFError):
                more = b""
            self._rest = (self._rest + more).lstrip(b"\r\n")
            if not more or len(self._rest) > _LONGEST_LINE:
                self.close()
                return None
        line, _, rest = self._rest.partition(b"\n")
        self._rest = rest.lstrip(b"\r\n")
        return line.decode("utf-8", "replace")

    def say(self, data: bytes) -> bool:
        """Write to its standard input; return whether it is still there."""
        try:
            self._end.settimeout(DEAD_PEER_S)
            self._end.sendall(data)
        except (OSError, EOFError):
            self.close()
        return self.stands and not getattr(self._end, "closed", False)

    def close(self) -> None:
        """End it: its standard input is at its end."""
        self.stands = False
        with suppress(OSError, EOFError, paramiko.SSHException):
            self._end.close()


def start(connector: object, command: str) -> LastingCommand | None:
    """Start a program on a host beside the commands that pyinfra runs one after the other.

    + command: as a shell takes it, with sudo and all

    None for a connector that is neither SSH nor this machine. Raises OSError where the connection
    is gone. As long as the peer likes: `wire.start` gives it up in time.
    """
    client = client_of(connector)
    if client is not None:
        return LastingCommand(_begun(client, command, as_one=True))
    if not isinstance(connector, LocalConnector):
        return None
    ours, theirs = socket.socketpair()
    with theirs:
        handle = theirs.fileno()
        os.set_blocking(handle, True)  # gevent's sockets are not, and the program would see that
        subprocess.Popen(  # noqa: S602 (as pyinfra's own connector runs commands)
            command, shell=True, stdin=handle, stdout=handle, stderr=subprocess.STDOUT
        )
    return LastingCommand(ours)


def connect_kwargs(*, logins: int = LOGINS) -> dict[str, Any]:
    """Return what group_data and inventories hand to pyinfra as ``ssh_paramiko_connect_kwargs``.

    + logins: how many of the hosts that it is handed for log in at the same time, at least 1
    """
    return {"transport_factory": partial(make_transport, turns=Turns(logins))}


CONNECT_KWARGS = connect_kwargs()
