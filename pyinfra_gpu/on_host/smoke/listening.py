"""Who can connect to what a test listens at: found out by trying.

torchrun's stores listen on every address of a host and take what anybody sends them; no option of
its binds them elsewhere. So root starts the test in a unit of systemd's that lets the addresses
which take part pass, and no others. Without root there is no such limit, which is told.
"""

from __future__ import annotations

import socket

ALLOWED_LOOPBACK = ("127.0.0.0/9", "::1")
"""What may pass beside the addresses that take part; not all of 127.0.0.0/8, so that it shows."""
_KEPT_OUT = "127.128.0.1"
ITSELF, GROUP, ANYONE = "itself", "group", "anyone"


def to_whom(limited: str) -> dict[str, str]:
    """Return who can connect to this process, and by what others are kept out, or why they are not.

    + limited: ITSELF or GROUP, whom the limit lets pass where there is one
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not _connects("127.0.0.1", port):
            return {"to": ANYONE, "how": "whether there is a limit could not be tried"}
        if _connects(_KEPT_OUT, port):
            return {
                "to": ANYONE,
                "how": "systemd has set no address limit, which takes root and BPF",
            }
    return {"to": limited, "how": "systemd lets the addresses that take part pass alone"}


def _connects(source: str, port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 0.5, (source, 0)).close()
    except OSError:
        return False
    return True
