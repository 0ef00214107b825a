"""A run of several hosts: who belongs to it, and where they meet before torchrun does.

Each host has a run of its own, of the same name. The first one listens at a port that was free when
it began; the others are told it by the controller, with a token that only they know. They meet
there as the hosts of a smoke test do, and torchrun then uses the same address and port. Who is not
there in time ends it for all.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from . import calling, interfaces, rendezvous
from .errors import TrainError
from .rendezvous import Met, Missed

MEETING_S = 60
_LARGEST = 64 << 10
_HOST = re.compile(r"[!-~]{1,253}")
_ADDRESS = re.compile(r"[0-9A-Fa-f.:]{2,45}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Across:
    """One host's part in it.

    + hosts: all of them, the first one leads; host: this one
    + run, commit: the name that the first host gave it, and what it has checked out; None there
    + addresses: of the first host; port: there, 0 where this is the first host, which chooses it
    + group: as it was given with --across, for the commands that texts name
    + token: what the hosts of this run know and nobody else, in hexadecimal
    """

    hosts: tuple[str, ...]
    host: str
    run: str | None
    commit: str | None
    addresses: tuple[str, ...]
    port: int
    token: str
    group: str = ""

    @property
    def place(self) -> int:
        """Return which of the hosts this one is."""
        return self.hosts.index(self.host)

    def as_json(self) -> dict[str, Any]:
        """Return it as `from_json` reads it; the token is in it."""
        return asdict(self)


def from_json(told: Any) -> Across:
    """Return a host's part as the controller or a run wrote it down; raises TrainError."""
    try:
        part = Across(**{**told, **{name: tuple(told[name]) for name in ("hosts", "addresses")}})
        good = (
            len(part.hosts) > 1
            and part.host in part.hosts
            and all(_HOST.fullmatch(each) for each in part.hosts)
            and all(_ADDRESS.fullmatch(each) for each in part.addresses)
            and (part.place == 0 or part.port > 0)
            and 0 <= part.port < 1 << 16
            and len(bytes.fromhex(part.token)) >= 16
            and isinstance(part.group, str)
        )
    except (TypeError, KeyError, ValueError):
        good = False
    if not good:
        raise TrainError("a run of several hosts is started by `pyinfra-gpu train ... --across`")
    return part


def read_part() -> Across:
    """Return this host's part, which the controller sends on standard input; raises TrainError."""
    try:
        told = json.loads(sys.stdin.buffer.read(_LARGEST))
    except (ValueError, RecursionError):
        told = None
    part, asked = from_json(told), calling.caller()
    return replace(part, group=asked.group) if asked else part


def free_port() -> int:
    """Return a port that nobody listens at now."""
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])


def meet(part: Across, stopped: Callable[[], str | None]) -> Met:
    """Wait until all hosts are there; raises TrainError where one does not come."""
    until = time.monotonic() + MEETING_S
    endpoints = [(address, part.port) for address in part.addresses]
    token = bytes.fromhex(part.token)
    try:
        if part.place == 0:
            others = range(1, len(part.hosts))
            found = rendezvous.serve(endpoints, others, token, until, stopped)
        else:
            found = rendezvous.reach(endpoints, part.place, token, until, stopped)
    except OSError as error:
        raise TrainError(f"port {part.port} cannot be listened at: {error.strerror}") from None
    if isinstance(found, Missed):
        raise TrainError(_absent(part, found))
    return found


def _absent(part: Across, missed: Missed) -> str:
    within = f"within {MEETING_S} s"
    if part.place == 0:
        names = ", ".join(part.hosts[place] for place in missed.absent)
        return f"{names} did not come to this run {within}: see `train why` there"
    if missed.welcomed:
        return f"{part.host} came to this run, and another host did not {within}"
    tried = "; ".join(f"{address}: {why}" for address, why in missed.tried.items())
    return (
        f"{part.host} could not reach {part.hosts[0]} at port {part.port} {within}"
        f" ({tried or 'no answer'}): let TCP through between the hosts, or declare"
        f" smoke_across_address for {part.hosts[0]}"
    )


def rendezvous_words(part: Across, run: str, met: Met) -> list[str]:
    """Return the options by which torchrun finds the other hosts."""
    address, port = met.endpoint
    endpoint = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    leads = "true" if part.place == 0 else "false"
    return [
        *("--rdzv-id", run, "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint),
        *("--local-addr", met.local, "--rdzv-conf"),
        f"is_host={leads},join_timeout={MEETING_S},read_timeout={MEETING_S}",
    ]


def variables(met: Met) -> dict[str, str]:
    """Return the variables by which the ranks use the interface that leads to the others."""
    interface = interfaces.interface_of(met.local)
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    return dict.fromkeys(names, interface) if interface else {}
