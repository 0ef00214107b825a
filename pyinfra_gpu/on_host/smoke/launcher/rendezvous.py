"""Where torchrun's store of a step across hosts is reached, and by which of a host's interfaces.

A host may have several addresses, and not all of them lead to the others. So the first host
listens where the store will be; the others connect, and leave at once. Both ends then know an
address that works: no word is exchanged.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_SIOCGIFADDR = 0x8915  # linux/sockios.h
_EACH_S = 3.0
_PAUSE_S = 0.1


@dataclass(frozen=True)
class Met:
    """An address that works. `local` is this host's end of it; `endpoint` is the store's."""

    local: str
    endpoint: tuple[str, int]


@dataclass
class Missed:
    """Nobody was met. `tried` is address -> what went wrong there."""

    tried: dict[str, str] = field(default_factory=dict)


def interface_of(address: str) -> str | None:
    """Return the interface that has this IPv4 address, None if none has."""
    return next((name for _, name in socket.if_nameindex() if _address(name) == address), None)


def _address(interface: str) -> str | None:
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError:  # it is down or has no IPv4 address
            return None
    return socket.inet_ntoa(answer[20:24])


def serve(port: int, until: float, stopped: Callable[[], str | None]) -> Met | Missed:
    """Listen at `port` until another host connects, or until a moment on the monotonic clock.

    + stopped: whether to give up at once

    Raises OSError where the port is in use.
    """
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    with socket.create_server(("", port), family=family, dualstack_ipv6=dual) as server:
        server.settimeout(_PAUSE_S)
        while time.monotonic() < until and not stopped():
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            with connection:
                local = str(connection.getsockname()[0]).removeprefix("::ffff:")
            return Met(local, (local, port))
    return Missed()


def reach(
    endpoints: Sequence[tuple[str, int]], until: float, stopped: Callable[[], str | None]
) -> Met | Missed:
    """Try the endpoints one after the other, again and again, until one accepts; see `serve`."""
    missed = Missed()
    while True:
        for address, port in endpoints:
            try:
                with socket.create_connection((address, port), timeout=_EACH_S) as connection:
                    return Met(str(connection.getsockname()[0]), (address, port))
            except OSError as error:
                missed.tried[address] = error.strerror or str(error)
            if time.monotonic() > until or stopped():
                return missed
        time.sleep(_PAUSE_S)
