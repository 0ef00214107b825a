"""The processes that measure: torchrun and its ranks. Each writes a journal and decides nothing.

A rank first tries its device alone (S1 to S3), then all ranks together (S4). Its settings come as
JSON on the command line: what the launcher wants of it.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import (
    collectives,
    compiling,
    device,
    exchange,
    hang,
    libraries,
    links,
    precision,
    step,
)
from .journal import HOST, Writer
from .options import REHEARSAL_CPU
from .ranks import die_with_parent

if TYPE_CHECKING:
    import torch

_NCCL_TIMEOUT = timedelta(seconds=60)
"""NCCL's watchdog writes its flight recorder down when this is over."""


@dataclass
class Rank:
    """One rank of `world_size`, with its journal and the device that its tensors are on.

    + directory: where all ranks of this host write
    """

    journal: Writer
    rank: int
    world_size: int
    device: torch.device
    directory: Path
    allreduce_mib: int = 1

    @property
    def compiles(self) -> bool:
        """Whether this rank compiles: on the CPU of a host one does it for all."""
        return self.device.type != "cpu" or self.rank == 0

    def meet(self, name: str) -> None:
        """Wait until all ranks of this host have come here.

        Not by a collective, whose watchdog ends a rank that waits for longer than a minute: a
        compiler on slow cores takes that. A hang is the launcher's to end, here too.
        """
        self.journal.step("waiting for the other ranks")
        (self.directory / f"{name}.{self.rank}").touch()
        while len([*self.directory.glob(f"{name}.*")]) < self.world_size:
            time.sleep(0.02)


MEASUREMENTS: Mapping[str, Callable[[Rank], None]] = {
    "device": device.measure,
    "libraries": libraries.measure,
    "compile": compiling.measure,
    "precision": precision.measure,
    "store": libraries.measure_store,
    "collectives": collectives.measure,
    "step": step.measure,
    "bandwidth": links.measure,
}
"""All that ranks can measure, in this order."""
_ALONE = ("device", "libraries", "compile", "precision")


def measurements(mode: str) -> list[str]:
    """Return what the ranks of a whole test in `mode` measure."""
    left_out = ("precision", *(("device", "bandwidth") if mode == REHEARSAL_CPU else ()))
    return [name for name in MEASUREMENTS if name not in left_out]


def main(text: str) -> int:
    """Be the rank that torchrun made of this process; return the exit code."""
    die_with_parent()
    settings, rank = json.loads(text), int(os.environ["RANK"])
    directory = Path(settings["directory"])
    # A file of its own, which neither a full log nor whoever holds standard error can keep from it.
    stacks = hang.stack_file(directory, rank).open("w")
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    journal = Writer(directory, rank)
    try:
        _rank(settings, directory, journal, rank)
    except Exception as error:
        journal.error(error)
        traceback.print_exc()
        return 1
    return 0


def _imported(journal: Writer, settings: Mapping[str, Any], **more: Any) -> Any:
    """Import torch, and record which process this is and which torch that was."""
    with journal.measuring("import"):
        import torch
    identity = {
        "pid": os.getpid(),
        "host": settings["host"],
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "torch": str(torch.__version__),
        "torch_path": str(Path(str(torch.__file__)).resolve().parent),
    }
    journal.fact("identity", {**identity, **more})
    return torch


def _rank(settings: Mapping[str, Any], directory: Path, journal: Writer, rank: int) -> None:
    world_size, local_rank = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    torch = _imported(journal, settings, rank=rank)
    on_cpu = settings["mode"] == REHEARSAL_CPU
    place = torch.device("cpu") if on_cpu else torch.device("cuda", local_rank)
    it = Rank(journal, rank, world_size, place, directory, settings["allreduce_mib"])
    for name in [each for each in settings["measure"] if each in _ALONE]:
        MEASUREMENTS[name](it)
    if not set(settings["measure"]) <= {*_ALONE}:
        _together(it, settings["measure"])
    journal.finished()


def _together(it: Rank, measure: list[str]) -> None:
    """Measure what all ranks do together, in a process group."""
    import torch
    import torch.distributed as dist

    with it.journal.measuring("init"):
        if it.device.type == "cpu":
            # Longer than the deadline: a hang is the launcher's to end, with the stacks of all
            # ranks; a collective that gave up first would only blame the rank that waits.
            dist.init_process_group("gloo", timeout=timedelta(hours=2))
        else:
            torch.cuda.set_device(it.device)
            dist.init_process_group("nccl", timeout=_NCCL_TIMEOUT, device_id=it.device)
    for name in [each for each in measure if each not in _ALONE]:
        MEASUREMENTS[name](it)
    it.journal.step("teardown")
    # Without these two, a process now and then aborts on its way out ("terminate called without
    # an active exception"): gloo's threads still serve a peer, or a DDP kept by a reference cycle.
    dist.barrier()
    gc.collect()
    dist.destroy_process_group()


def agent(text: str, arguments: list[str]) -> int:
    """Be torchrun, after a look at the torch that it uses; record the exit codes of ranks that
    failed (negative: signals).
    """
    settings = json.loads(text)
    directory, given = Path(settings["directory"]), None
    journal = Writer(directory, HOST)
    try:
        _imported(journal, settings)
        import torch.distributed.run
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

        if settings["meeting"]:
            given = exchange.Exchange(directory, *settings["meeting"])
        journal.step("starting the ranks")  # and meeting the other hosts' before
        torchrun: Any = torch.distributed.run
        try:
            torchrun.run(torchrun.parse_args(arguments))
        except ChildFailedError as error:
            codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
            journal.fact("codes", codes)
            traceback.print_exc()
            return 1
    except Exception as error:
        journal.error(error.__cause__ or error)  # a failed rendezvous has one
        traceback.print_exc()
        return 1
    finally:
        journal.finished()
        if given:
            given.finish()
    return 0
