"""One SSH connection: quick, fair to the others, and not at the mercy of its peer.

paramiko leaves Nagle's algorithm on, and together with delayed ACKs that costs about 40 ms for
each command. It also waits for ever on a peer that vanished without a word. Both are cured on the
socket, which pyinfra lets inventory data hand us through paramiko's ``transport_factory``.

A peer that is up to no good is ended here too, as far as no command has to be known for that: one
that does not come to a login, or sends more than it was allowed to.
"""

from __future__ import annotations

import socket
import time
from typing import Any

import paramiko

from pyinfra_gpu.engine.turns import Turn, Turns

DEAD_PEER_S = 20
"""Seconds without an acknowledgement after which a connection is given up."""

KEEPALIVE_S = 5
"""Seconds between keepalive packets, so that an idle wait notices a dead peer too."""

GREETING_S = 10
"""Seconds to a host's first byte, as many as pyinfra has for a connection by itself."""

LOGIN_S = 60
"""Seconds from the first byte to the end of the login, with a touch of a hardware key."""

_BEFORE_LOGIN = 1 << 17
"""Bytes that a peer may send before the login is done; keys and banners come to a tenth."""

_UNREAD = 16 << 20
"""Bytes of one channel that nobody has read yet; a peer that keeps to its window sends 2 MiB."""

_NO_BANNER = "Error reading SSH protocol banner"
"""What paramiko says, and the cause right behind it without a blank."""

_READS = 16  # in a row, after which others have their turn


class _Socket:
    """The socket of one connection: fair to the other hosts, and patient only for a while.

    As long as a peer sends, a socket of gevent's hands out what is there and lets nobody else run.
    """

    def __init__(self, sock: Any, turn: Turn | None) -> None:
        self.inner = sock
        self.transport: paramiko.Transport | None = None
        self._turn = turn
        self._began = time.monotonic()
        self._received = self._reads = 0

    def recv(self, size: int) -> bytes:
        """Return what has come.

        Raises SSHException where there is no login, and has been time and room enough for one:
        paramiko's thread would stumble over an OSError without a number.
        """
        self._reads += 1
        if not self._reads % _READS:
            time.sleep(0)
        if self._received >= 0 and self.transport is not None:
            self._check_login(self.transport)
        data = bytes(self.inner.recv(size))
        if self._received >= 0:
            self._received += len(data)
        return data

    def _check_login(self, transport: paramiko.Transport) -> None:
        if transport.is_authenticated():
            self._received = -1
            self._end_turn()
        elif self._received > _BEFORE_LOGIN:
            raise paramiko.SSHException(
                f"it sent more than {_BEFORE_LOGIN >> 10} KiB before the login"
            )
        elif time.monotonic() - self._began > LOGIN_S:
            raise paramiko.SSHException(f"it did not come to a login within {LOGIN_S} s")

    def close(self) -> None:
        """Close it, before the login or after."""
        self._end_turn()
        self.inner.close()

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._turn.end()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _fed(channel: Any, message: Any) -> None:
    """Take in data of a channel, as long as somebody reads it."""
    channel._feed(message)
    _require_reader(channel)


def _fed_extended(channel: Any, message: Any) -> None:
    channel._feed_extended(message)
    _require_reader(channel)


def _require_reader(channel: Any) -> None:
    if len(channel.in_buffer) + len(channel.in_stderr_buffer) > _UNREAD:
        raise paramiko.SSHException("it sends more than it may")  # which ends the connection


class _Transport(paramiko.Transport):
    """A connection whose peer is held to SSH's rules, and to the window that it was given."""

    _channel_handler_table = {  # noqa: RUF012 - paramiko's own form
        **paramiko.Transport._channel_handler_table,  # type: ignore[attr-defined]
        paramiko.common.MSG_CHANNEL_DATA: _fed,
        paramiko.common.MSG_CHANNEL_EXTENDED_DATA: _fed_extended,
    }

    def get_exception(self) -> Exception | None:
        """Return why it ended: always an exception that users of paramiko reckon with.

        paramiko hands on what its parsers stumbled over as it is, UnicodeDecodeError for one.
        """
        error: Exception | None = super().get_exception()
        if isinstance(error, paramiko.SSHException) and str(error).startswith(_NO_BANNER):
            why = str(error).removeprefix(_NO_BANNER) or "it hung up"
            return paramiko.SSHException(f"no greeting of an SSH server came: {why}")
        if error is None or isinstance(error, paramiko.SSHException | OSError | EOFError):
            return error
        kind = type(error).__name__
        return paramiko.SSHException(f"it does not keep to the rules of SSH ({kind}: {error})")


def make_transport(sock: Any, turns: Turns | None = None, **kwargs: Any) -> paramiko.Transport:
    """Build the SSH transport for one connection, with the socket underneath tuned.

    + sock: what paramiko connected: a TCP socket, a ``paramiko.Channel`` when the host is reached
      through a ProxyJump, or a ``paramiko.ProxyCommand``
    + turns: waits for one of these, which ends with the login, once the host has said a word
    + kwargs: paramiko's own transport arguments, passed on unchanged

    Through a jump host the only TCP connection is the one to the jump host, made by pyinfra
    without a factory; it is tuned here, when the first channel through it is used.
    """
    _tune(sock)
    turn = None
    if turns:
        _await_greeting(sock)
        turn = turns.take()
    fair = _Socket(sock, turn)
    transport = _Transport(fair, **kwargs)  # type: ignore[arg-type]
    fair.transport = transport
    transport.set_keepalive(KEEPALIVE_S)
    return transport


def _await_greeting(sock: object) -> None:
    """Wait for the first byte, where this is TCP: an SSH server speaks first.

    Raises OSError where none comes.
    """
    if not isinstance(sock, socket.socket):
        return
    before = sock.gettimeout()
    sock.settimeout(GREETING_S)
    try:
        sock.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        raise OSError(f"it said nothing for {GREETING_S} s") from None
    finally:
        sock.settimeout(before)


def _tune(sock: object) -> None:
    """Switch Nagle off and bound the time without an acknowledgement, where this is TCP."""
    if not isinstance(sock, socket.socket) or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux only, see tcp(7); in milliseconds
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_PEER_S * 1000)
