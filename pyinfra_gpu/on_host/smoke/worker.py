"""The processes that measure: torchrun and its ranks. Each writes a journal and decides nothing.

A rank first tries its device alone (S1 to S3), then all ranks together (S4). What the launcher
wants of it comes as JSON on the command line: the test's options, the folder, and what to measure.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import traceback
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from . import collectives, compiling, device, hang, libraries, links, precision, step
from .journal import HOST, Journal, Writer, file_of
from .options import REHEARSAL_CPU, Options
from .rank import Rank, dist, torch
from .ranks import die_with_parent

_TIMEOUT = timedelta(seconds=60)
"""NCCL's watchdog writes its flight recorder down when this is over; and so long a rank waits for
one of another host."""


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


def measurements(options: Options) -> list[str]:
    """Return what the ranks of a whole test measure; those of several hosts try these together."""
    if options.hosts:
        return ["collectives", "step"]
    left_out = ("precision", *(("device", "bandwidth") if options.mode == REHEARSAL_CPU else ()))
    return [name for name in MEASUREMENTS if name not in left_out]


def main(text: str) -> int:
    """Be the rank that torchrun made of this process; return the exit code."""
    die_with_parent()
    options, directory, measure = _settings(text)
    rank = int(os.environ["RANK"])
    # A file of its own, which neither a full log nor whoever holds standard error can keep from it.
    stacks = hang.stack_file(directory, rank).open("w")
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    journal = Writer(directory, rank)
    try:
        _rank(options, journal, directory, measure)
    except Exception as error:
        journal.error(error)
        traceback.print_exc()
        return 1
    return 0


def _settings(text: str) -> tuple[Options, Path, list[str]]:
    options, directory, measure = json.loads(text)
    return Options(**options), Path(directory), measure


def _rank(options: Options, journal: Writer, directory: Path, measure: list[str]) -> None:
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    journal.step("import")
    import torch

    identity = {
        "rank": rank,
        "pid": os.getpid(),
        "host": options.host,
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "torch": str(torch.__version__),
        "torch_path": str(Path(str(torch.__file__)).resolve().parent),
    }
    journal.fact("identity", identity)
    on_cpu = options.mode == REHEARSAL_CPU
    place = torch.device("cpu") if on_cpu else torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    it = Rank(journal, rank, world_size, place, directory, options.allreduce_mib)
    for name in [each for each in measure if each in _ALONE]:
        MEASUREMENTS[name](it)
    if together := [each for each in measure if each not in _ALONE]:
        _together(it, together, among_hosts=bool(options.hosts))
    journal.finished()


def _together(it: Rank, measure: list[str], *, among_hosts: bool) -> None:
    """Measure what all ranks do together, in a process group."""
    with it.journal.measuring("init"):
        if it.device.type == "cpu":
            # On one host longer than the deadline: a hang is the launcher's to end, with the stacks
            # of all ranks; a collective that gave up first would only blame the rank that waits.
            limit = _TIMEOUT if among_hosts else timedelta(hours=2)
            dist.init_process_group("gloo", timeout=limit)
        else:
            torch.cuda.set_device(it.device)
            dist.init_process_group("nccl", timeout=_TIMEOUT, device_id=it.device)
    for name in measure:
        MEASUREMENTS[name](it)
    if among_hosts:
        _tell_the_others(it)
    it.journal.step("teardown")
    # Without these two, a process now and then aborts on its way out ("terminate called without
    # an active exception"): gloo's threads still serve a peer, or a DDP kept by a reference cycle.
    dist.barrier()
    gc.collect()
    dist.destroy_process_group()


def _tell_the_others(it: Rank) -> None:
    """Record the fact "everyone": what each rank, on whatever host, has written down, by way of the
    store at which they met. So the launcher of each host judges all ranks.
    """
    from torch.distributed import distributed_c10d

    mine = Journal(it.rank)
    mine.follow(file_of(it.directory, it.rank))
    with it.journal.measuring("everyone") as value:
        store: Any = distributed_c10d._get_default_store()
        store.set(f"facts of {it.rank}", json.dumps(mine.facts))
        reported = {rank: store.get(f"facts of {rank}") for rank in range(it.world_size)}
        value.update({str(rank): json.loads(text) for rank, text in reported.items()})


def agent(text: str, arguments: list[str]) -> int:
    """Be torchrun; record the exit codes of ranks that failed (negative: signals)."""
    journal = Writer(_settings(text)[1], HOST)
    try:
        journal.step("import")
        import torch.distributed.run

        journal.step("starting the ranks")  # and meeting the other hosts' before
        torchrun: Any = torch.distributed.run
        torchrun.run(torchrun.parse_args(arguments))
    except Exception as error:
        if failures := getattr(error, "failures", None):  # of ranks, as torchrun collects them
            journal.fact("codes", {rank: each.exitcode for rank, each in failures.items()})
        else:
            journal.error(error.__cause__ or error)  # a failed rendezvous has one
        traceback.print_exc()
        return 1
    return 0
