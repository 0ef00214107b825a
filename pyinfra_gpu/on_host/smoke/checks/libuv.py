"""S2: whether this torch can serve a store with libuv, without which torchrun does not start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..judge.check import Check, Expected, Facts, Finding

_THREADS = "pt_tcpstore"
_LIBUV = "pt_tcpstore_uv"


def try_server() -> dict[str, Any]:
    """Construct a server that asks for libuv, use it, and look at the name of its thread.

    Asking a store for its `libuvBackend` only returns what was asked for.
    """
    from torch._C import _distributed_c10d as distributed

    before = _own_threads()
    fact: dict[str, Any] = {"error": None, "threads": [], "returned": None}
    try:
        store = distributed.TCPStore("127.0.0.1", 0, 1, True, use_libuv=True)
        store.set("smoke", "test")
        fact["returned"] = store.get("smoke").decode()
    except RuntimeError as error:  # DistStoreError is one: "built without libuv support"
        fact["error"] = str(error).strip().splitlines()[0][:300]
        return fact
    new = {tid: name for tid, name in _own_threads().items() if tid not in before}
    fact["threads"] = sorted(name for name in new.values() if name.startswith(_THREADS))
    return fact


def _own_threads() -> dict[str, str]:
    threads = Path("/proc/self/task")
    return {task.name: (task / "comm").read_text().strip() for task in threads.iterdir()}


def _store(facts: Facts, _: Expected) -> Finding:
    for number, fact in facts.items():
        server = fact["libuv"]
        if server["error"]:
            detail = f"a store with libuv cannot be served: {server['error']}"
            return Finding(False, server["error"], [_LIBUV], detail, number)
        if set(server["threads"]) != {_LIBUV}:
            named = ", ".join(server["threads"]) or "none"
            detail = f"a store that asks for libuv is served by these threads: {named}"
            return Finding(False, server["threads"], [_LIBUV], detail, number)
        if server["returned"] != "test":
            detail = f"the store returned {server['returned']!r} for 'test'"
            return Finding(False, server["returned"], "test", detail, number)
    return Finding(True, server["threads"], [_LIBUV], "thread pt_tcpstore_uv")


CHECKS: tuple[Check, ...] = (Check("S2.libuv", ("libuv",), _store, each=True),)
