"""A run that several hosts train together: torchrun's c10d rendezvous makes one world of them.

The controller gives all hosts the same part as --part, as JSON: {"hosts": [...], "address": of the
first one, "port": there, "run": name}; for a check only "hosts".
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

from ..smoke.listening import interface_of
from .host import TrainError

MEETING_S = 60
"""Seconds that hosts wait for each other."""


def part_of(text: str | None) -> dict[str, Any] | None:
    """Return this host's part, with the name by which the controller knows it."""
    return None if text is None else {**json.loads(text), "host": os.environ["PYINFRA_GPU_HOST"]}


def place() -> dict[str, Any]:
    """Return where others can meet this host; the controller may know another address of it."""
    said = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout
    known = (word for word in said.split() if "." in word and not word.startswith("169.254."))
    with socket.create_server(("", 0)) as server:
        return {"address": next(known, ""), "port": int(server.getsockname()[1])}


def with_rendezvous(
    part: dict[str, Any], run: str, command: list[str], stopped: Callable[[], bool]
) -> tuple[list[str], dict[str, str]]:
    """Return torchrun's command and variables with where the hosts meet.

    Other hosts than the first wait until it is there; raise TrainError where it does not come.
    """
    leads = part["host"] == part["hosts"][0]
    local = part["address"] if leads else _reached(part, stopped)
    conf = f"is_host={str(leads).lower()},join_timeout={MEETING_S},read_timeout={MEETING_S}"
    endpoint = f"{part['address']}:{part['port']}"
    words = [
        *("--rdzv-id", run, "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint),
        *("--local-addr", local, "--rdzv-conf", conf),
    ]
    at = command.index("--nproc-per-node")
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
