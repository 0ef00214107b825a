"""Who can connect to what a test listens at: found out by trying; and this host's own addresses.

torchrun's stores listen on every address of a host and take what anybody sends them; no option of
its binds them elsewhere. So root starts the test in a unit of systemd's that lets the addresses
which take part pass, and no others. Without root there is no such limit; the test finds that out
by trying, and says so.
"""

from __future__ import annotations

import fcntl
import socket
import struct

_SIOCGIFADDR = 0x8915  # linux/sockios.h
ALLOWED_LOOPBACK = ("127.0.0.0/9", "::1")
"""What may pass beside the addresses that take part; not all of 127.0.0.0/8, so that it shows."""
_KEPT_OUT = "127.128.0.1"


def others_are_kept_out() -> bool:
    """Return whether only the addresses that take part can connect to this process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        return _connects("127.0.0.1", port) and not _connects(_KEPT_OUT, port)


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
