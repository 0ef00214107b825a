"""What a test in each mode checks, and how its ranks are started: by torchrun, as training is."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from . import (
    bandwidth,
    collectives,
    compiling,
    device,
    environment,
    gpus,
    host,
    libraries,
    precision,
    step,
    store,
    transport,
)
from .check import TORCHRUN, Check, Facts, Want, fail, pairs
from .group import ENDED, Plan
from .options import REHEARSAL_CPU, Options


def _ranks(facts: Facts, want: Want) -> str:
    torch = libraries.imported(facts, want)
    host = next(iter(facts.values()))["identity"]["host"]
    for rank, fact in facts.items():
        identity = fact["identity"]
        if left := [name for name in identity["strays"] if not name.startswith("TORCHELASTIC_")]:
            fail(f"rank {rank} was started with {', '.join(left)} set", rank)
        found = {key: identity[key] for key in ("rank", "world_size", "host")}
        wanted = {"rank": rank, "world_size": want.ranks, "host": host}
        if found != wanted:
            fail(f"rank {rank} reports {pairs(found)}; expected {pairs(wanted)}", rank)
    if len({fact["identity"]["pid"] for fact in facts.values()}) < len(facts):
        fail("two ranks are the same process")
    return torch


CHECKS = (
    Check("S4.ranks", ("identity", "init"), _ranks, each=True),
    *store.CHECKS,
    *collectives.CHECKS,
    *step.CHECKS,
)
"""Of ranks together, on any host."""
AFTERWARDS = (*transport.CHECKS, *precision.CHECKS)
"""On GPU hosts, decided by the launcher when the ranks have ended."""
ACROSS = tuple(check for check in CHECKS if check.across)


def checks_of(mode: str) -> list[Check]:
    """Return all checks of a test in `mode`, in the order in which they are decided."""
    on_gpus = mode != REHEARSAL_CPU
    return [
        *host.BEFORE,
        *(gpus.BEFORE if on_gpus else ()),
        *libraries.CHECKS[:1],
        *(device.CHECKS if on_gpus else ()),
        *libraries.CHECKS[1:],
        store.ALONE,
        *compiling.CHECKS,
        *CHECKS,
        *(bandwidth.CHECKS if on_gpus else ()),
        ENDED,
        *(AFTERWARDS if on_gpus else ()),
        *host.AFTER,
        *(gpus.AFTER if on_gpus else ()),
    ]


def plan_of_ranks(
    options: Options,
    mode: str,
    count: int,
    bundle: Path,
    directory: Path,
    checks: Sequence[Check],
    variables: Mapping[str, str | None],
    rendezvous: Sequence[str] = ("--standalone", "--local-addr", "127.0.0.1"),
) -> Plan:
    """Return the plan of `count` ranks under torchrun, as training is started.

    + checks: those that the facts of ranks decide: they measure what these ask for
    + variables: set for them, or with None, removed
    + rendezvous: where all meet; the store's address would otherwise be the hostname, which need
      not resolve
    """
    for folder in (environment.RECORDINGS, environment.PIPES):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    nccl = {} if mode == REHEARSAL_CPU else environment.of_nccl(directory)
    clean = environment.clean(os.environ, mode, compiling=options.compile)
    changed: dict[str, str | None] = {**clean, **nccl, **variables}
    kept = {name: value for name, value in changed.items() if value is not None}
    settings = {
        "directory": str(directory),
        "mode": mode,
        "allreduce_mib": options.allreduce_mib,
        "measure": measurements(checks),
        "variables": [*kept],
    }
    torchrun = [
        *(sys.executable, str(bundle), "--torchrun", str(directory)),
        *(*rendezvous, "--nproc-per-node", str(count), "--max-restarts", "0"),
        *("--log-dir", str(directory / "logs"), "--redirects", "3"),
        *(str(bundle), "--rank", json.dumps(settings)),
    ]
    return Plan(torchrun, kept, directory, count, checks)


def measurements(checks: Iterable[Check]) -> list[str]:
    """Return what ranks must measure for `checks`, in the order in which it is first needed."""
    return list(dict.fromkeys(check.by for check in checks if check.by and check.by != TORCHRUN))
