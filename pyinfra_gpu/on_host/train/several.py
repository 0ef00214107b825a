"""A run that several hosts train together: torchrun's c10d rendezvous makes one world of them.

The controller tells each host its part on standard input, as JSON:
{"hosts": [...], "host": its name, "address": of the first host, "port": there, "run": name,
"commit": HEAD, "group": of the inventory}. The first host chooses port and name.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from ..smoke.listening import interface_of
from .host import TrainError

MEETING_S = 60
"""Seconds that hosts wait for each other."""
_KINDS = {"hosts": list, "host": str, "address": str, "port": int}


def read_part() -> dict[str, Any]:
    """Return this host's part; raise TrainError where the controller did not send one."""
    try:
        part = json.loads(sys.stdin.buffer.read(64 << 10))
        good = all(type(part[name]) is kind for name, kind in _KINDS.items())
        good = good and part["host"] in part["hosts"] and all(map(str.isprintable, part["hosts"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        good = False
    if not good:
        raise TrainError("a run of several hosts is started by `pyinfra-gpu train ... --across`")
    return {**part, "port": part["port"] or _free_port()}


def own_address() -> str:
    """Return this host's first address; the controller may know another one by which it is met."""
    said = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout
    return next((word for word in said.split() if "." in word), "")


def leads(part: dict[str, Any]) -> bool:
    return bool(part["host"] == part["hosts"][0])


def with_rendezvous(
    part: dict[str, Any], run: str, command: list[str], stopped: Callable[[], bool]
) -> tuple[list[str], dict[str, str]]:
    """Return torchrun's command and variables with where the hosts meet.

    Other hosts than the first wait until it is there; raise TrainError where it does not come.
    """
    address, port = part["address"], part["port"]
    local = address
    if not leads(part):
        local = _reached(part, stopped)
    at = command.index("--nproc-per-node")
    conf = f"is_host={str(leads(part)).lower()},join_timeout={MEETING_S},read_timeout={MEETING_S}"
    words = [
        *("--rdzv-id", run, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{address}:{port}"),
        *("--local-addr", local, "--rdzv-conf", conf),
    ]
    name = interface_of(local)
    both = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    return [*command[:at], *words, *command[at:]], dict.fromkeys(both, name) if name else {}


def _reached(part: dict[str, Any], stopped: Callable[[], bool]) -> str:
    until, why = time.monotonic() + MEETING_S, "no answer"
    while time.monotonic() < until and not stopped():
        try:
            with socket.create_connection((part["address"], part["port"]), timeout=3) as there:
                return str(there.getsockname()[0])
        except OSError as error:
            why = error.strerror or str(error)
        time.sleep(0.2)
    first = part["hosts"][0]
    raise TrainError(
        f"{part['host']} could not reach {first} at {part['address']}:{part['port']} within"
        f" {MEETING_S} s ({why}): let TCP through between the hosts, or declare"
        f" smoke_across_address for {first}"
    )


def _free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])
