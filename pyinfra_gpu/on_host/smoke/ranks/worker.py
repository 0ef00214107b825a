"""One rank: measures, writes its journal, decides nothing.

Which measurements it makes, and in which order, follows from the checks that need them: `Check.by`
names a module of this package (or of `gpu`) whose `measure` writes the facts down.
"""

from __future__ import annotations

import gc
import importlib
import os
import traceback
from datetime import timedelta

from .. import environment, processes, stacks
from ..checks import single
from ..journal import RANK, Writer
from ..options import REHEARSAL_CPU, WorkerOptions
from .rank import Rank

_NCCL_TIMEOUT = timedelta(seconds=60)
"""NCCL's watchdog writes its flight recorder down when this is over."""


def run(options: WorkerOptions) -> int:
    """Work through all measurements; return the exit code for torchrun."""
    processes.tie_to(options.launcher_pid, generations=2)
    rank = int(os.environ["RANK"])
    stacks.offer_stacks(options.directory, RANK, rank)
    journal = Writer(options.directory, rank)
    journal.started(pid=os.getpid(), local_rank=int(os.environ["LOCAL_RANK"]))
    try:
        _measure(options, journal, rank)
    except Exception as error:
        journal.error(error)
        traceback.print_exc()
        return 1
    return 0


def _measure(options: WorkerOptions, journal: Writer, rank: int) -> None:
    with journal.measuring("import") as value:
        import torch
        import torch.distributed as dist

        value["torch"] = torch.__version__
    world_size, local_rank = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    journal.fact("environment", environment.stray_in_rank(os.environ, options.mode), 0.0)
    device = torch.device("cpu")
    if options.mode != REHEARSAL_CPU:
        from ..gpu import ranks as gpu_ranks

        device = gpu_ranks.prepare(torch, options.mode, rank, local_rank)
    identity = {**single.identity(torch), "rank": rank, "local_rank": local_rank}
    identity |= {"world_size": world_size, "device": str(device)}
    journal.fact("identity", identity, 0.0)
    with journal.measuring("init"):
        if device.type == "cpu":
            # Longer than the deadline: a hang is the launcher's to end, with the stacks of all
            # ranks; a collective that gave up first would only blame the rank that waits.
            dist.init_process_group("gloo", timeout=timedelta(seconds=2 * options.deadline))
        else:
            dist.init_process_group("nccl", timeout=_NCCL_TIMEOUT, device_id=device)
            journal.fact("gpu", gpu_ranks.identity(torch, device), 0.0)
    it = Rank(options, journal, rank, world_size, device)
    for name in options.measure:
        module = importlib.import_module(f"..{name}" if "." in name else f".{name}", __package__)
        module.measure(it)
    journal.step("teardown")
    # Without these two, a process now and then aborts on its way out ("terminate called without
    # an active exception"): gloo's threads still serve a peer, or a DDP kept by a reference cycle.
    dist.barrier()
    gc.collect()
    dist.destroy_process_group()
    journal.finished()
