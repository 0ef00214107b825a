"""One rank: measures, writes its journal, decides nothing."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import socket
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from types import ModuleType

from . import environment, processes
from .journal import Writer
from .options import WorkerOptions


def run(options: WorkerOptions) -> int:
    """Work through all measurements; return the exit code for torchrun."""
    _tie_to_launcher(options.launcher_pid)
    # The launcher asks for stacks before it ends a hang.
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    rank = int(os.environ["RANK"])
    journal = Writer(options.directory, rank)
    journal.started(pid=os.getpid())
    try:
        _measure(options, journal, rank)
    except Exception as error:
        journal.error(error)
        traceback.print_exc()
        return 1
    return 0


def _tie_to_launcher(launcher_pid: int) -> None:
    """Die with torchrun, which dies with the launcher; leave at once if either has gone already."""
    processes.die_with_parent()
    agent = processes.read(os.getppid())
    if agent is None or agent.parent != launcher_pid:
        sys.exit("the launcher of this smoke test has ended")


def _measure(options: WorkerOptions, journal: Writer, rank: int) -> None:
    with journal.measuring("import") as value:
        import torch
        import torch.distributed as dist

        value["torch"] = torch.__version__
    world_size = int(os.environ["WORLD_SIZE"])
    journal.fact("identity", _identity(torch, rank, world_size), 0.0)
    journal.fact("environment", environment.stray_in_rank(os.environ), 0.0)
    with journal.measuring("init"):
        # Longer than the deadline: a hang is the launcher's to end, with the stacks of all ranks;
        # a collective that gave up first would only blame the rank that waits.
        limit = timedelta(seconds=2 * options.deadline)
        dist.init_process_group("gloo", timeout=limit)
    _measure_in_group(options, journal, rank, world_size)
    journal.step("teardown")
    # Without these two, a process now and then aborts on its way out ("terminate called without
    # an active exception"): gloo's threads still serve a peer, or a DDP kept by a reference cycle.
    dist.barrier()
    gc.collect()
    dist.destroy_process_group()
    journal.finished()


def _measure_in_group(options: WorkerOptions, journal: Writer, rank: int, world_size: int) -> None:
    # Imported here because they import torch, which must come after the journal has begun.
    from . import collectives, store, training_step

    with journal.measuring("store") as value:
        value.update(store.inspect())
    collectives.measure(journal, rank, world_size, options.allreduce_mib)
    training_step.measure(journal, rank, world_size)


def _identity(torch: ModuleType, rank: int, world_size: int) -> dict[str, object]:
    return {
        "rank": rank,
        "local_rank": int(os.environ["LOCAL_RANK"]),
        "world_size": world_size,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "python": sys.executable,
        "torch": torch.__version__,
        "torch_path": str(Path(str(torch.__file__)).resolve()),
        "device": "cpu",
    }
