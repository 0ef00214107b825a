"""Every check of the smoke test, a row each, in the order in which they are decided.

Stages: S0 the host, S1 each device alone, S3 the compiler, S4 the ranks together, S5 afterwards;
S6 the ranks of several hosts, which a run of its own tries.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from . import collectives, compiling, device, gpus, host, libraries, links, precision, step
from .check import Check
from .options import REHEARSAL_CPU

_Host = partial(Check, of_host=True)
_HostGpu = partial(Check, of_host=True, gpu=True)
_Gpu = partial(Check, gpu=True)
_Load = partial(Check, needs="bandwidth", gpu=True, each=False)
"""Of rank 0, which looks at all GPUs under load."""
_Across = partial(Check, across=True)

COLLECTIVES = _Across("S4.collectives", collectives.right, "collectives")
CHECKS = (
    _Host("S0.environment", host.variables, "variables"),
    _Host("S0.shm", host.shm, "shm"),
    _HostGpu("S0.gpus", gpus.listed, "gpu_host"),
    _HostGpu("S0.gpu_processes", gpus.processes, "gpu_host"),
    _Across("S1.import", libraries.imported, "identity"),
    _Gpu("S1.cuda", device.cuda, "cuda device"),
    _Gpu("S1.matmul", precision.matmuls, "matmul"),
    _Gpu("S1.memory", device.memories, "memory"),
    _Gpu("S1.speed", device.speeds, "device speed"),
    Check("S1.libraries", libraries.mapped, "libraries"),
    Check("S3.compile", compiling.compiled, "compile"),
    Check("S4.store", libraries.store, "store"),
    COLLECTIVES,
    _Across("S4.training_step", step.trained, "step", each=False),
    _Load("S4.link", links.link),
    _Load("S4.bandwidth", links.bandwidth),
    _Host("S4.finished", host.finished, "ended", across=True),
    _HostGpu("S4.transport", links.transport, "transport"),
    _HostGpu("S4.own_choice", links.own_choice, "own_choice"),
    _HostGpu("S4.precision", precision.ladder, "precision"),
    _Host("S5.kernel_log", host.kernel_log, "kernel"),
    _Host("S5.leftovers", host.leftovers, "processes"),
)


def checks_of(mode: str, *, across: bool = False) -> list[Check]:
    """Return the checks of a test in `mode`; of a step across hosts they are a stage of its own."""
    if across:
        return [replace(each, id=f"S6{each.id[2:]}") for each in CHECKS if each.across]
    return [check for check in CHECKS if not check.gpu or mode != REHEARSAL_CPU]
