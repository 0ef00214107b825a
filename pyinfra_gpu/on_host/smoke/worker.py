"""One process that measures: it writes its journal and decides nothing.

Its settings come as JSON on the command line: what the launcher wants of it.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import socket
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import bandwidth, collectives, compiling, device, environment, libraries, step, store
from .journal import RANK, SINGLE, Writer
from .options import REHEARSAL_CPU
from .processes import die_with_parent

if TYPE_CHECKING:
    import torch

_NCCL_TIMEOUT = timedelta(seconds=60)
"""NCCL's watchdog writes its flight recorder down when this is over."""


@dataclass(frozen=True)
class Rank:
    """One rank of `world_size`, with its journal and the device that its tensors are on."""

    journal: Writer
    rank: int
    world_size: int
    device: torch.device
    allreduce_mib: int = 1
    compiled: bool = False


MEASUREMENTS: Mapping[str, Callable[[Rank], None]] = {
    "store": store.measure,
    "all_reduce": collectives.all_reduce,
    "small_all_reduce": collectives.small_all_reduce,
    "others": collectives.others,
    "pairs": collectives.pairs,
    "step": step.measure,
    "compiled": step.compiled,
    "bandwidth": bandwidth.measure,
}
"""What checks of ranks ask for, see `Check.by`."""


def main(kind: str, text: str) -> int:
    """Do what the settings in `text` ask for; return the exit code."""
    die_with_parent()
    settings = json.loads(text)
    directory = Path(settings["directory"])
    number = int(os.environ["RANK"]) if kind == RANK else int(settings["device"])
    # A file of its own, which neither a full log nor whoever holds standard error can keep from it.
    stacks = stack_file(directory, kind, number).open("w")
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    journal = Writer(directory, kind, number)
    try:
        (_rank if kind == RANK else _single)(settings, journal, number)
    except Exception as error:
        journal.error(error)
        traceback.print_exc()
        return 1
    return 0


def stack_file(directory: Path, kind: str, number: int) -> Path:
    """Return the file for the stacks of a process, which it writes when it gets SIGUSR1."""
    return directory / f"{kind}{number}.stack"


def _imported(journal: Writer, **more: Any) -> Any:
    """Import torch, and record which process this is and which torch that was."""
    with journal.measuring("import"):
        import torch
    identity = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "torch": str(torch.__version__),
        "torch_path": str(Path(str(torch.__file__)).resolve().parent),
    }
    journal.fact("identity", {**identity, **more})
    return torch


def _single(settings: Mapping[str, Any], journal: Writer, number: int) -> None:
    """Try one device: S1 to S3."""
    cache = Path(settings["directory"]) / "compiled" / f"single{number}"
    os.environ.update(environment.caches(cache))
    _imported(journal)
    on_cpu = settings["mode"] == REHEARSAL_CPU
    if not on_cpu:
        device.measure(number, journal)
    with journal.measuring("libraries") as value:
        value.update(libraries.read())
    with journal.measuring("libuv") as value:
        value.update(store.serve_one())
    with journal.measuring("compile") as value:
        value.update(compiling.measure("cpu" if on_cpu else f"cuda:{number}", cache))
    journal.finished()


def _rank(settings: Mapping[str, Any], journal: Writer, rank: int) -> None:
    """S4."""
    world_size, local_rank = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    torch = _imported(
        journal,
        rank=rank,
        world_size=world_size,
        strays=[
            name
            for name in environment.stray(os.environ, settings["mode"])
            if name not in settings["variables"] and name not in environment.OF_TORCHRUN
        ],
    )
    import torch.distributed as dist

    on_cpu = settings["mode"] == REHEARSAL_CPU
    place = torch.device("cpu") if on_cpu else torch.device("cuda", local_rank)
    with journal.measuring("init"):
        if on_cpu:
            # Longer than the deadline: a hang is the launcher's to end, with the stacks of all
            # ranks; a collective that gave up first would only blame the rank that waits.
            dist.init_process_group("gloo", timeout=timedelta(hours=2))
        else:
            torch.cuda.set_device(place)
            dist.init_process_group("nccl", timeout=_NCCL_TIMEOUT, device_id=place)
            journal.fact("gpu", device.identity(local_rank))
    it = Rank(journal, rank, world_size, place, settings["allreduce_mib"], settings["compiled"])
    for name in settings["measure"]:
        MEASUREMENTS[name](it)
    journal.step("teardown")
    # Without these two, a process now and then aborts on its way out ("terminate called without
    # an active exception"): gloo's threads still serve a peer, or a DDP kept by a reference cycle.
    dist.barrier()
    gc.collect()
    dist.destroy_process_group()
    journal.finished()


def agent(failures: Path, arguments: list[str]) -> int:
    """Run torchrun; write the exit codes of ranks that failed (negative: signals) to a file."""
    import torch.distributed.run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    torchrun: Any = torch.distributed.run
    try:
        torchrun.run(torchrun.parse_args(arguments))
    except ChildFailedError as error:
        codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
        failures.write_text(json.dumps(codes))
        traceback.print_exc()
        return 1
    return 0


__all__ = ["RANK", "SINGLE", "Rank", "agent", "main"]
