"""S2 and S4: whether a store is served with libuv.

`TCPStore.libuvBackend` only repeats what the client was constructed with. The name of the server's
thread is what tells: "pt_tcpstore_uv" with libuv, "pt_tcpstore" without.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .check import TORCHRUN, Check, Facts, Want, fail

if TYPE_CHECKING:
    from .worker import Rank

_LIBUV = ["pt_tcpstore_uv"]


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
    """Record the fact "store": its class, its address as seen by this rank, and its server's
    threads: the server is torchrun normally, or rank 0 if sharing torchrun's store is off.
    """
    from torch.distributed import distributed_c10d

    with it.journal.measuring("store") as value:
        store: Any = distributed_c10d._get_default_store()
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        value["class"] = type(store).__name__
        value["host"], value["port"] = getattr(store, "host", None), getattr(store, "port", None)
        value["master_addr"] = os.environ["MASTER_ADDR"]
        value["master_port"] = int(os.environ["MASTER_PORT"])
        value["threads"] = [*_store_threads(os.getppid()), *_store_threads(os.getpid())]


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
        if {*store["threads"]} != {*_LIBUV}:
            named = ", ".join(store["threads"]) or "none"
            fail(f"the store threads of torchrun and rank {rank} are: {named}", rank)
    return f"{wanted[1]}:{wanted[2]}, with libuv"


ALONE = Check("S2.libuv", ("libuv",), _libuv, by=TORCHRUN)
CHECKS = (Check("S4.store", ("store",), _store, each=True, by="store"),)
