"""S2 and S4: whether a store is served with libuv.

`TCPStore.libuvBackend` only repeats what the client was constructed with. The name of the server's
thread is what tells: "pt_tcpstore_uv" with libuv, "pt_tcpstore" without.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .check import TORCHRUN, Check, Facts, Want, fail

if TYPE_CHECKING:
    from .worker import Rank

_LIBUV = ["pt_tcpstore_uv"]
_LISTEN = "0A"  # include/net/tcp_states.h


def serve_one() -> dict[str, Any]:
    """Construct a server that asks for libuv, use it, and look at the name of its thread."""
    from torch._C import _distributed_c10d as distributed

    fact: dict[str, Any] = {"error": None, "threads": [], "returned": None}
    try:
        store = distributed.TCPStore("127.0.0.1", 0, 1, True, use_libuv=True)
        store.set("smoke", "test")
        fact["returned"] = store.get("smoke").decode()
        fact["threads"] = _store_threads(os.getpid())
    except RuntimeError as error:  # DistStoreError is one: "built without libuv support"
        fact["error"] = str(error).strip().splitlines()[0][:300]
    return fact


def _libuv(facts: Facts, _: Want) -> str:
    server = facts[0]["libuv"]
    if server["error"]:
        fail(f"a store with libuv cannot be served: {server['error']}")
    if server["threads"] != _LIBUV:
        named = ", ".join(server["threads"]) or "none"
        fail(f"a store that asks for libuv is served by these threads: {named}")
    if server["returned"] != "test":
        fail(f"the store returned {server['returned']!r} for 'test'")
    return "thread pt_tcpstore_uv"


def measure(it: Rank) -> None:
    """Record the fact "store": its class, its address as seen by this rank, its server's threads.

    The server is the process that listens on MASTER_PORT: torchrun's agent normally, rank 0 if
    sharing the agent's store is off.
    """
    from torch.distributed import distributed_c10d

    with it.journal.measuring("store") as value:
        store: Any = distributed_c10d._get_default_store()
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        port = int(os.environ["MASTER_PORT"])
        server = _listener(port)
        value["class"] = type(store).__name__
        value["host"], value["port"] = getattr(store, "host", None), getattr(store, "port", None)
        value["master_addr"], value["master_port"] = os.environ["MASTER_ADDR"], port
        value["agent_pid"], value["server_pid"] = os.getppid(), server
        value["server_threads"] = _store_threads(server) if server else []


def _listener(port: int) -> int | None:
    """Return the process of ours that listens on `port`, None if no such process is seen."""
    sockets = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        lines = table.read_text().splitlines()[1:] if table.exists() else []
        for fields in map(str.split, lines):
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").iterdir():
        # suppress: it is another user's process, or it ends now, or the file was closed meanwhile
        with suppress(OSError):
            for file in (process / "fd").iterdir() if process.name.isdigit() else ():
                with suppress(OSError):
                    if os.readlink(file) in sockets:  # noqa: PTH115 - no path, "socket:[123]"
                        return int(process.name)
    return None


def _store_threads(pid: int) -> list[str]:
    threads = Path(f"/proc/{pid}/task").iterdir()
    names = {(thread / "comm").read_text().strip() for thread in threads}
    return sorted(name for name in names if name.startswith("pt_tcpstore"))


def _store(facts: Facts, _: Want) -> str:
    for rank, fact in facts.items():
        store = fact["store"]
        used = [store["class"], store["host"], store["port"]]
        wanted = ["TCPStore", store["master_addr"], store["master_port"]]
        if used != wanted:
            fail(f"rank {rank} uses {used}, its environment says {wanted}", rank)
        if store["server_pid"] is None:
            fail(f"rank {rank} found no process that listens on port {wanted[2]}", rank)
        if store["server_threads"] != _LIBUV:
            named = ", ".join(store["server_threads"]) or "none"
            role = "torchrun" if store["server_pid"] == store["agent_pid"] else "a rank"
            server = f"the store is served by {role} (pid {store['server_pid']})"
            fail(f"{server}, whose store threads are: {named}", rank)
    return f"{wanted[1]}:{wanted[2]}, with libuv"


ALONE = Check("S2.libuv", ("libuv",), _libuv, by=TORCHRUN)
CHECKS = (Check("S4.store", ("store",), _store, each=True, by="store"),)
