"""What a test in each mode checks, and how its ranks are started: by torchrun, as training is."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import compiling, device, environment, gpus, host, libraries, ranks, store
from .check import Check, measurements
from .group import ENDED, Plan
from .options import REHEARSAL_CPU, Options


def checks_of(mode: str) -> list[Check]:
    """Return all checks of a test in `mode`, in the order in which they are decided."""
    on_gpus = mode != REHEARSAL_CPU
    return [
        *host.BEFORE,
        *(gpus.BEFORE if on_gpus else ()),
        libraries.LOCATED,
        *libraries.CHECKS[:1],
        *(device.CHECKS if on_gpus else ()),
        *libraries.CHECKS[1:],
        store.ALONE,
        *compiling.CHECKS,
        *(ranks.ON_GPUS if on_gpus else ranks.CHECKS),
        ENDED,
        *(ranks.AFTERWARDS if on_gpus else ()),
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
    *,
    measure: Sequence[str] = (),
) -> Plan:
    """Return the plan of `count` ranks under torchrun, as training is started.

    + variables: set for them, or with None, removed
    + rendezvous: where all meet; the store's address would otherwise be the hostname, which need
      not resolve
    + measure: what they measure, if not what `checks` ask for
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
        "measure": [*(measure or measurements(checks))],
        "variables": [*kept],
    }
    torchrun = [
        *(sys.executable, str(bundle), "--torchrun", str(directory)),
        *(*rendezvous, "--nproc-per-node", str(count), "--max-restarts", "0"),
        *("--log-dir", str(directory / "logs"), "--redirects", "3"),
        *(str(bundle), "--rank", json.dumps(settings)),
    ]
    return Plan(torchrun, kept, directory, count, checks)
