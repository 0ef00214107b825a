"""Who can connect to what a test listens at: found out by trying.

torchrun's stores listen on every address of a host and take what anybody sends them; no option of
its binds them elsewhere. So root starts the test in a unit of systemd's that lets the addresses
which take part pass, and no others. Without root there is no such limit, and the test says so.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from typing import Final, Literal

from .document import Listens

_SIOCGIFADDR = 0x8915  # linux/sockios.h
ALLOWED_LOOPBACK = ("127.0.0.0/9", "::1")
"""What may pass beside the addresses that take part; not all of 127.0.0.0/8, so that it shows."""
_KEPT_OUT = "127.128.0.1"
ITSELF: Final = "itself"
GROUP: Final = "group"
ANYONE: Final = "anyone"


def to_whom(limited: Literal["itself", "group"]) -> Listens:
    """Return who can connect to this process, and by what others are kept out, or why they are not.

    + limited: ITSELF or GROUP, whom the limit lets pass where there is one
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not _connects("127.0.0.1", port):
            return Listens(ANYONE, "whether there is a limit could not be tried")
        if _connects(_KEPT_OUT, port):
            return Listens(
                ANYONE,
                "no address limit is set, which takes root and BPF",
            )
    return Listens(limited, "systemd lets the addresses that take part pass alone")


def _connects(source: str, port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 0.5, (source, 0)).close()
    except OSError:
        return False
    return True


def interface_of(address: str) -> str | None:
    """Return the interface that has this IPv4 address, None if none has."""
    for _, name in socket.if_nameindex():
        request = struct.pack("256s", name.encode()[:15])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            try:
                answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, request)
            except OSError:  # it is down or has no IPv4 address
                continue
        if socket.inet_ntoa(answer[20:24]) == address:
            return name
    return None


def seen_by(address: str) -> str:
    """Return the address of this host from which it would reach another's; nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as any_socket:
        any_socket.connect((address, 9))
        return str(any_socket.getsockname()[0])
