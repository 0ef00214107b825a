"""Which network interface of this machine has an address."""

from __future__ import annotations

import fcntl
import socket
import struct

_SIOCGIFADDR = 0x8915  # linux/sockios.h


def interface_of(address: str) -> str | None:
    """Return the interface that has this IPv4 address, None if none has."""
    return next((name for _, name in socket.if_nameindex() if _address(name) == address), None)


def _address(interface: str) -> str | None:
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, request)
        except OSError:  # it is down or has no IPv4 address
            return None
    return socket.inet_ntoa(answer[20:24])
