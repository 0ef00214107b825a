"""Every check of the smoke test, a row each, in the order in which they are decided.

Stages: S0 the host, S1 each device alone, S3 the compiler, S4 the ranks together, S5 afterwards;
S6 the ranks of several hosts, which a run of its own tries.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from . import (
    collectives,
    compiling,
    device,
    gpus,
    host,
    libraries,
    links,
    precision,
    step,
)
from .check import Check
from .options import REHEARSAL_CPU

_HOST: Any = {"of": "host"}
_HOST_GPU: Any = {"of": "host", "gpu": True}
_GPU: Any = {"gpu": True}
_FIRST: Any = {"gpu": True, "each": False}
"""Of rank 0, which looks at all GPUs under load."""
_ACROSS: Any = {"across": True}
_STEP = ("parameters_before", "gradients", "step")

ALL_REDUCE = Check("S4.allreduce_exact", collectives.all_reduced, ("all_reduce",), **_ACROSS)
CHECKS = (
    Check("S0.environment", host.variables, ("variables",), **_HOST),
    Check("S0.shm", host.shm, ("shm",), **_HOST),
    Check("S0.disk", host.disk, ("disk",), **_HOST),
    Check("S0.gpus", gpus.listed, ("gpu_host",), **_HOST_GPU),
    Check("S0.gpu_state", gpus.state, ("gpu_host",), **_HOST_GPU),
    Check("S0.gpu_processes", gpus.processes, ("gpu_host",), **_HOST_GPU),
    Check("S1.import", libraries.imported, ("identity",), **_HOST),
    Check("S1.cuda", device.cuda, ("cuda", "device"), **_GPU),
    Check("S1.arch", device.arch, ("cuda", "device"), **_GPU),
    Check("S1.matmul", device.matmuls, ("matmul",), **_GPU),
    Check("S1.memory", device.memories, ("memory",), **_GPU),
    Check("S1.speed", device.speeds, ("device", "speed"), **_GPU),
    Check("S1.libraries", libraries.mapped, ("libraries",)),
    Check("S3.compile", compiling.compiled, ("compile",)),
    Check("S4.ranks", libraries.ranks, ("identity",), **_ACROSS),
    Check("S4.store", libraries.store, ("store",)),
    ALL_REDUCE,
    Check("S4.collectives", collectives.others_right, ("collectives",), **_ACROSS),
    Check("S4.grad_bitwise", step.mean_gradient, ("gradients",), **_ACROSS),
    Check("S4.training_step", step.training_step, _STEP, each=False, **_ACROSS),
    Check("S4.loss_drop", step.loss_fell, ("gradients", "step"), each=False, **_ACROSS),
    Check("S4.link", links.link, ("bandwidth",), **_FIRST),
    Check("S4.bandwidth", links.bandwidth, ("bandwidth",), **_FIRST),
    Check("S4.throttle", links.throttled, ("bandwidth",), **_FIRST),
    Check("S4.finished", host.finished, ("ended",), of="host", across=True),
    Check("S4.transport", links.transport, ("transport",), **_HOST_GPU),
    Check("S4.own_choice", links.own_choice, ("own_choice",), **_HOST_GPU),
    Check("S4.precision", precision.formats, ("precision",), **_HOST_GPU),
    Check("S5.kernel_log", host.kernel_log, ("kernel",), **_HOST),
    Check("S5.leftovers", host.leftovers, ("processes",), **_HOST),
    Check("S5.xids", host.xids, ("kernel",), **_HOST_GPU),
)


def checks_of(mode: str, *, across: bool = False) -> list[Check]:
    """Return the checks of a test in `mode`; of a step across hosts they are a stage of its own."""
    if across:
        return [replace(each, id=each.id.replace("S4", "S6")) for each in CHECKS if each.across]
    return [check for check in CHECKS if not check.gpu or mode != REHEARSAL_CPU]
