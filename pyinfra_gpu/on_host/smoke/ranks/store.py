"""Which process serves the ranks' store, and with which implementation.

`TCPStore.libuvBackend` only repeats what the client was constructed with. The name of the server's
thread is what tells: "pt_tcpstore_uv" with libuv, "pt_tcpstore" without. The server is the process
that listens on MASTER_PORT: torchrun's agent normally, rank 0 if sharing the agent's store is off.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch.distributed import distributed_c10d

from .rank import Rank

_LISTEN = "0A"  # include/net/tcp_states.h


def measure(it: Rank) -> None:
    """Record the fact "store"."""
    with it.journal.measuring("store") as value:
        value.update(_inspect())


def _inspect() -> dict[str, Any]:
    """Return the store's class, its address as seen by this rank, and its server's threads."""
    store = distributed_c10d._get_default_store()
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    port = int(os.environ["MASTER_PORT"])
    server = _listener(port)
    return {
        "class": type(store).__name__,
        "host": getattr(store, "host", None),
        "port": getattr(store, "port", None),
        "master_addr": os.environ["MASTER_ADDR"],
        "master_port": port,
        "agent_pid": os.getppid(),
        "server_pid": server,
        "server_threads": _store_threads(server) if server else [],
    }


def _listener(port: int) -> int | None:
    """Return the process of ours that listens on `port`, None if no such process is seen."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and sockets & _open_files(process):
            return int(process.name)
    return None


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        lines = Path(table).read_text().splitlines()[1:] if Path(table).exists() else []
        for fields in map(str.split, lines):
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(fields[9])
    return inodes


def _open_files(process: Path) -> set[str]:
    targets = set()
    # suppress: it is another user's process, or it ends now, or the file was closed meanwhile,
    # as in our own case the one through which this very directory is listed
    with suppress(OSError):
        for file in (process / "fd").iterdir():
            with suppress(OSError):
                targets.add(os.readlink(file))  # noqa: PTH115 - no path, "socket:[123]"
    return targets


def _store_threads(pid: int) -> list[str]:
    names = [
        (thread / "comm").read_text().strip() for thread in Path(f"/proc/{pid}/task").iterdir()
    ]
    return sorted(name for name in names if name.startswith("pt_tcpstore"))
