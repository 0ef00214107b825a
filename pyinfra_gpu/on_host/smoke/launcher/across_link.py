"""Lines of JSON between the launchers of several hosts; and the addresses they meet at.

The launchers talk beside torch, over connections of their own: where torch's are the ones that
hang, somebody must still be able to say who is missing.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import struct
from typing import Any

_SIOCGIFADDR = 0x8915  # linux/sockios.h
_LONGEST = 8 * 2**20
"""Bytes of a line, or of a queue; whoever sends more is not one of us."""
_CHUNK = 2**16


def addresses() -> list[str]:
    """Return this host's IPv4 addresses, one for each interface, the loopback's left out.

    IPv6 is used only where data names an address (`smoke_across_address`).
    """
    found = []
    for _, name in socket.if_nameindex():
        address = _address(name)
        if address is not None and not address.startswith("127."):
            found.append(address)
    return found


def interface_of(address: str) -> str | None:
    """Return the interface that has this IPv4 address, None if none has."""
    for _, name in socket.if_nameindex():
        if _address(name) == address:
            return name
    return None


def _address(interface: str) -> str | None:
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError:  # it is down or has no IPv4 address
            return None
    return socket.inet_ntoa(answer[20:24])


class Link:
    """One connection that never blocks: what cannot be sent now is kept and sent later."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._received = b""
        self._waiting = b""
        self.closed = False

    def fileno(self) -> int:
        """Return the file descriptor, for `select`."""
        return self._socket.fileno()

    @property
    def behind(self) -> bool:
        """Return whether something still waits to be sent."""
        return bool(self._waiting) and not self.closed

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message, and send as much of the queue as goes now."""
        self._waiting += json.dumps(message).encode() + b"\n"
        if len(self._waiting) > _LONGEST:  # the other end has not read for a long time
            self.close()
        self.flush()

    def flush(self) -> None:
        """Send as much of the queue as goes now."""
        try:
            while self.behind:
                sent = self._socket.send(self._waiting[:_CHUNK])
                self._waiting = self._waiting[sent:]
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages that have come; sets `closed` once there will be no more."""
        self._fill()
        whole, newline, rest = self._received.rpartition(b"\n")
        self._received = rest if newline else self._received
        messages = []
        for line in whole.splitlines():
            message = _object(line)
            if message is None:
                self.close()
                break
            messages.append(message)
        return messages

    def _fill(self) -> None:
        try:
            while not self.closed and len(self._received) <= _LONGEST:
                chunk = self._socket.recv(_CHUNK)
                self._received += chunk
                if not chunk:
                    self.close()
        except BlockingIOError:
            return
        except OSError:
            self.close()
        if len(self._received) > _LONGEST:
            self.close()

    def close(self) -> None:
        """Close the connection; what was not sent is lost."""
        if not self.closed:
            self.closed = True
            self._socket.close()

    def local_address(self) -> str:
        """Return the address of this end."""
        return str(self._socket.getsockname()[0])


class Dialer:
    """Tries the addresses of another host one after the other, until one accepts."""

    def __init__(self, candidates: list[str], port: int, patience: float) -> None:
        self._candidates = candidates
        self._port = port
        self._patience = patience
        self._number = -1
        self._since = 0.0
        self._socket: socket.socket | None = None
        self.address = ""
        self.refusals: dict[str, str] = {}

    def poll(self, now: float) -> Link | None:
        """Return the connection once there is one; to be called over and over."""
        if self._socket is None:
            self._begin(now)
            return None
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code == 0:
            try:
                self._socket.getpeername()
            except OSError:  # neither refused nor connected yet
                if now - self._since < self._patience:
                    return None
                code = errno.ETIMEDOUT
            else:
                link, self._socket = Link(self._socket), None
                return link
        self._give_up(os.strerror(code))
        return None

    def _begin(self, now: float) -> None:
        self._number = (self._number + 1) % len(self._candidates)
        self.address = self._candidates[self._number]
        self._since = now
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        try:
            self._socket.connect((self.address, self._port))
        except BlockingIOError:
            return
        except OSError as error:
            self._give_up(error.strerror or str(error))

    def _give_up(self, why: str) -> None:
        self.refusals[self.address] = why
        self.close()

    def close(self) -> None:
        """Give up what was begun."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def listen(port: int) -> socket.socket:
    """Return a socket that accepts connections at `port` on all addresses, IPv4 and IPv6.

    Raises OSError, most likely because the port is in use.
    """
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    server = socket.create_server(("", port), family=family, dualstack_ipv6=dual, backlog=64)
    server.setblocking(False)
    return server


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
