"""The checks of S4, decided on the facts that the ranks wrote down.

No rank has a say in its own case.
"""

from __future__ import annotations

from . import collectives, training
from .check import Check, Expected, Facts, Finding, measured, pairs
from .single import ended, torch_imported


def _environment(facts: Facts, _: Expected) -> Finding:
    for rank, fact in facts.items():
        if left := fact["environment"]:
            detail = f"rank {rank} was started with {', '.join(left)} set"
            return Finding(False, left, [], detail, rank)
    return Finding(True, [], [])


def _identity(facts: Facts, expected: Expected) -> Finding:
    identities = {rank: fact["identity"] for rank, fact in facts.items()}
    host = next(iter(identities.values()))["host"]
    for rank, identity in identities.items():
        measured = {key: identity[key] for key in ("rank", "world_size", "host")}
        wanted = {"rank": rank, "world_size": expected.ranks, "host": host}
        if measured != wanted:
            detail = f"rank {rank} reports {pairs(measured)}; expected {pairs(wanted)}"
            return Finding(False, measured, wanted, detail, rank)
    pids = [identity["pid"] for identity in identities.values()]
    if len(set(pids)) != len(pids):
        return Finding(False, pids, "one process a rank", "two ranks are the same process")
    devices = [identity["device"] for identity in identities.values()]
    return Finding(True, pids, "one process a rank", f"{len(pids)} ranks, {devices[0]}")


def _store_address(facts: Facts, _: Expected) -> Finding:
    for rank, fact in facts.items():
        store = fact["store"]
        measured = [store["class"], store["host"], store["port"]]
        wanted = ["TCPStore", store["master_addr"], store["master_port"]]
        if measured != wanted:
            detail = f"rank {rank} uses {measured}, its environment says {wanted}"
            return Finding(False, measured, wanted, detail, rank)
    return Finding(True, measured, wanted, f"{wanted[1]}:{wanted[2]}")


def _store_libuv(facts: Facts, _: Expected) -> Finding:
    wanted = ["pt_tcpstore_uv"]
    for rank, fact in facts.items():
        store = fact["store"]
        if store["server_pid"] is None:
            detail = f"rank {rank} found no process that listens on port {store['master_port']}"
            return Finding(False, [], wanted, detail, rank)
        threads = store["server_threads"]
        if set(threads) != set(wanted):
            named = ", ".join(threads) or "none"
            role = "torchrun" if store["server_pid"] == store["agent_pid"] else "a rank"
            detail = (
                f"the store is served by {role} (pid {store['server_pid']}), "
                f"whose store threads are: {named}"
            )
            return Finding(False, threads, wanted, detail, rank)
    return Finding(True, threads, wanted, "served by torchrun" if _by_agent(facts) else "")


def _by_agent(facts: Facts) -> bool:
    stores = [fact["store"] for fact in facts.values()]
    return all(store["server_pid"] == store["agent_pid"] for store in stores)


def _object_list(facts: Facts, _: Expected) -> Finding:
    if lacking := facts[0]["object_list"].get("without_numpy"):
        detail = f"not tried: {lacking} ranks have no NumPy, by which torch packs objects"
        return Finding(True, None, None, detail, status="skip")
    sent = facts[0]["object_list"]["held"]
    for rank, fact in facts.items():
        held = fact["object_list"]["held"]
        if held != sent:
            detail = f"rank {rank} received {', '.join(held)} in place of {', '.join(sent)}"
            return Finding(False, held, sent, detail, rank)
    return Finding(True, sent, sent, f"{len(sent)} objects")


ALL_REDUCES = ("S4.allreduce_exact", "S4.allreduce_exact_bf16")
FINISHED = Check("S4.finished", ("ended",), ended)
CHECKS: tuple[Check, ...] = (
    Check("S4.environment", ("environment",), _environment, each=True),
    Check("S4.torch", ("identity",), torch_imported("rank"), each=True),
    Check("S4.identity", ("identity",), _identity, each=True),
    *measured(
        "store",
        Check("S4.store_address", ("store",), _store_address, each=True),
        Check("S4.store_libuv", ("store",), _store_libuv, each=True),
    ),
    *collectives.CHECKS,
    *measured("object_list", Check("S4.object_list", ("object_list",), _object_list), across=True),
    *training.CHECKS,
)
