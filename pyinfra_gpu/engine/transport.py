"""The only file that knows paramiko: SSH that is quick, and that notices a dead network.

paramiko leaves Nagle's algorithm on, and together with delayed ACKs that costs about 40 ms for
each command. It also waits for ever on a peer that vanished without a word. Both are cured on the
socket, and pyinfra lets inventory data hand us the socket through paramiko's own
``transport_factory`` argument, so nothing is patched.
"""

from __future__ import annotations

import socket
from typing import Any

import paramiko

DEAD_PEER_S = 20
"""Seconds without an acknowledgement after which a connection is given up."""

KEEPALIVE_S = 5
"""Seconds between keepalive packets, so that an idle wait notices a dead peer too."""


def make_transport(sock: Any, **kwargs: Any) -> paramiko.Transport:
    """Build the SSH transport for one connection, with the socket underneath tuned.

    + sock: what paramiko connected: a TCP socket, a ``paramiko.Channel`` when the host is reached
      through a ProxyJump, or a ``paramiko.ProxyCommand``
    + kwargs: paramiko's own transport arguments, passed on unchanged

    Through a jump host the only TCP connection is the one to the jump host, made by pyinfra
    without a factory; it is tuned here, when the first channel through it is used.
    """
    if isinstance(sock, paramiko.Channel):
        carrier = sock.get_transport()
        _tune(carrier.sock)
        carrier.set_keepalive(KEEPALIVE_S)
    else:
        _tune(sock)
    transport = paramiko.Transport(sock, **kwargs)
    transport.set_keepalive(KEEPALIVE_S)
    return transport


def _tune(sock: object) -> None:
    """Switch Nagle off and bound the time without an acknowledgement, where this is TCP."""
    if not isinstance(sock, socket.socket) or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux only, see tcp(7); in milliseconds
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_PEER_S * 1000)


def is_alive(connector: object) -> bool:
    """Tell whether a pyinfra connector's connection still stands; one without SSH always does.

    When a connection dies under a command, pyinfra reports the command as failed, like any other.
    """
    client = getattr(connector, "client", None)
    if not isinstance(client, paramiko.SSHClient):
        return True
    transport = client.get_transport()
    return transport is not None and transport.is_active()


CONNECT_KWARGS: dict[str, Any] = {"transport_factory": make_transport}
"""For inventories and group_data: ``ssh_paramiko_connect_kwargs = CONNECT_KWARGS``."""
