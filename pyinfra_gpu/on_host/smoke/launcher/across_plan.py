"""What one launcher is told about a step across hosts, checked before anything starts."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import exactness
from ..options import GPU, REHEARSAL_CPU

FLAG = "--across"
ADDRESSES = "--addresses"


@dataclass(frozen=True)
class Host:
    """One host of the step.

    + ranks: how many it runs; addresses: where its launcher may be reached
    + fingerprint: what its own smoke test passed with
    """

    ranks: int
    addresses: tuple[str, ...]
    fingerprint: str


@dataclass(frozen=True)
class Plan:
    """One step across hosts, as its launcher on `host` is asked for it; `deadline` in seconds.

    + hosts: all of them, in the order that is the same everywhere; the first one is the meeting
      point: its launcher listens at `port` + 1, torchrun's store at `port`
    """

    mode: str
    host: str
    hosts: dict[str, Host]
    run_id: str
    port: int
    deadline: int
    allreduce_mib: int
    output: Path
    stamp: Path

    @property
    def first(self) -> str:
        """Return the name of the host at which all meet."""
        return next(iter(self.hosts))

    @property
    def ranks(self) -> int:
        """Return the number of ranks on all hosts."""
        return sum(host.ranks for host in self.hosts.values())


def parse(arguments: list[str]) -> Plan:
    """Return the plan; leaves with exit code 2 and a sentence on a wrong one."""
    parser = argparse.ArgumentParser(
        prog=f"smoke_test.pyz {FLAG}", description="One host's part of a step across hosts."
    )
    parser.add_argument(FLAG, dest="host", required=True, metavar="HOST", help="this host's name")
    parser.add_argument("--mode", required=True, choices=(REHEARSAL_CPU, GPU))
    parser.add_argument("--hosts", required=True, type=_hosts, help="all hosts, as JSON")
    parser.add_argument("--run-id", required=True, help="the same on all hosts of one run")
    parser.add_argument("--port", type=int, default=29400, help="at the first host; and the next")
    parser.add_argument("--deadline", type=int, default=180, help="seconds")
    parser.add_argument("--allreduce-mib", type=int, default=64)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--stamp", type=Path, required=True)
    plan = Plan(**vars(parser.parse_args(arguments)))
    if plan.host not in plan.hosts:
        parser.error(f"{plan.host} is not among the hosts {', '.join(plan.hosts)}")
    if not 2 <= plan.ranks <= exactness.MAX_RANKS:
        parser.error(f"{plan.ranks} ranks are not possible: 2 to {exactness.MAX_RANKS} are")
    return plan


def _hosts(text: str) -> dict[str, Host]:
    try:
        return {name: _host(value) for name, value in json.loads(text).items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise argparse.ArgumentTypeError(f"not a plan of hosts ({error!r})") from None


def _host(value: dict[str, Any]) -> Host:
    return Host(
        ranks=int(value["ranks"]),
        addresses=tuple(map(str, value["addresses"])),
        fingerprint=str(value["fingerprint"]),
    )
