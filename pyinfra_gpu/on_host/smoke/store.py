"""Whether a store is served with libuv.

`TCPStore.libuvBackend` only repeats what the client was constructed with. The name of the server's
thread is what tells: "pt_tcpstore_uv" with libuv, "pt_tcpstore" without.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .check import Facts, Want, fail

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


def measure(it: Rank) -> None:
    """Record the fact "store": its class, its address as seen by this rank, and its server's
    threads: the server is torchrun normally, or rank 0 if sharing torchrun's store is off.
    """
    from torch.distributed import distributed_c10d

    with it.journal.measuring("store") as value:
        store: Any = distributed_c10d._get_default_store()
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        address = [getattr(store, "host", None), getattr(store, "port", None)]
        value["used"] = [type(store).__name__, *address]
        told = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        value["told"] = ["TCPStore", *told]
        value["threads"] = [*_store_threads(os.getppid()), *_store_threads(os.getpid())]


def _store_threads(pid: int) -> list[str]:
    threads = Path(f"/proc/{pid}/task").iterdir()
    names = {(thread / "comm").read_text().strip() for thread in threads}
    return sorted(name for name in names if name.startswith("pt_tcpstore"))


def served(facts: Facts, _: Want) -> str:
    """Judge the store that torchrun's process served for itself."""
    server = facts[0]["libuv"]
    if server["error"]:
        fail(f"a store with libuv cannot be served: {server['error']}")
    if server["threads"] != _LIBUV:
        named = ", ".join(server["threads"]) or "none"
        fail(f"a store that asks for libuv is served by these threads: {named}")
    if server["returned"] != "test":
        fail(f"the store returned {server['returned']!r} for 'test'")
    return "thread pt_tcpstore_uv"


def used(facts: Facts, _: Want) -> str:
    """Judge the store at which the ranks met."""
    for rank, fact in facts.items():
        store = fact["store"]
        if store["used"] != store["told"]:
            fail(f"rank {rank} uses {store['used']}, its environment says {store['told']}", rank)
        if {*store["threads"]} != {*_LIBUV}:
            named = ", ".join(store["threads"]) or "none"
            fail(f"the store threads of torchrun and rank {rank} are: {named}", rank)
    return f"{store['told'][1]}:{store['told'][2]}, with libuv"
