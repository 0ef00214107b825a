"""One rank of the step across hosts: measures, writes its journal, decides nothing."""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from .. import processes
from ..journal import Writer
from ..options import GPU

FLAG = "--across-worker"
"""What a rank's command line begins with, before the directory of its journal."""


@dataclass(frozen=True)
class RankOptions:
    """What one rank needs to know; the rest comes from torchrun's environment."""

    directory: Path
    host: str
    launcher_pid: int
    deadline: int
    allreduce_mib: int
    device: str


def main(arguments: list[str]) -> int:
    """Work through all measurements; return the exit code for torchrun."""
    parser = argparse.ArgumentParser()
    parser.add_argument(FLAG, dest="directory", type=Path, required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--device", required=True, choices=("cpu", "cuda"))
    for name in ("--launcher-pid", "--deadline", "--allreduce-mib"):
        parser.add_argument(name, type=int, required=True)
    options = RankOptions(**vars(parser.parse_args(arguments)))
    processes.tie_to(options.launcher_pid, generations=2)
    # The launcher asks for stacks before it ends a hang.
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    journal = Writer(options.directory, int(os.environ["RANK"]))
    journal.started(pid=os.getpid())
    try:
        _measure(options, journal)
    except Exception as error:
        journal.error(error)
        traceback.print_exc()
        return 1
    return 0


def _measure(options: RankOptions, journal: Writer) -> None:
    with journal.measuring("import") as value:
        import torch
        import torch.distributed as dist

        value["torch"] = torch.__version__
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    journal.fact("identity", _identity(options, torch.__version__), 0.0)
    device = torch.device("cpu")
    if options.device != "cpu":
        from ..gpu import ranks as gpu_ranks

        device = gpu_ranks.prepare(torch, GPU, rank, int(os.environ["LOCAL_RANK"]))
    # Longer than the deadline: a hang is the launcher's to end, see `worker`.
    limit = timedelta(seconds=2 * options.deadline)
    with journal.measuring("init"):
        if device.type == "cpu":
            dist.init_process_group("gloo", timeout=limit)
        else:
            dist.init_process_group("nccl", timeout=limit, device_id=device)
    from . import collectives, training_step

    collectives.measure(journal, rank, world_size, options.allreduce_mib, device)
    training_step.measure(journal, rank, world_size, device)
    journal.step("teardown")
    dist.barrier()  # as in `worker`: gloo's threads may still serve a peer
    gc.collect()
    dist.destroy_process_group()
    journal.finished()


def _identity(options: RankOptions, torch_version: str) -> dict[str, object]:
    return {
        "rank": int(os.environ["RANK"]),
        "local_rank": int(os.environ["LOCAL_RANK"]),
        "world_size": int(os.environ["WORLD_SIZE"]),
        "pid": os.getpid(),
        "host": options.host,
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "torch": torch_version,
    }
