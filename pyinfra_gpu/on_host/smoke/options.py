"""The command line: what the caller asks for, checked before anything starts."""

from __future__ import annotations

import argparse
import json
import os
import socket
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from .document import Mode

REHEARSAL_CPU: Final = "rehearsal-cpu"
REHEARSAL_1GPU: Final = "rehearsal-1gpu"
"""One GPU, and one NCCL rank on it: what `--mode gpu` becomes on a host of one GPU."""
GPU: Final = "gpu"
LARGEST_MIB = {GPU: 256, REHEARSAL_1GPU: 256, REHEARSAL_CPU: 64}
"""The largest all-reduce; on a CPU more would take half a minute. pyinfra_gpu.spec reads it too."""
MAX_RANKS = 16
"""Beyond that no pattern of bfloat16 values has an exact sum, see `collectives.period`."""
_REFUSED = 2


@dataclass(frozen=True)
class Across:
    """With whom this host takes one step; the controller gives it to each of them as JSON.

    + hosts: host -> the number of its ranks; the first serves torchrun's store, at `address` and
      `port`
    """

    hosts: Mapping[str, int]
    address: str
    port: int


@dataclass(frozen=True)
class Options:
    """One smoke test as asked for, see `parse`; paths are absolute, the deadline is in seconds.

    + gpus: how many GPUs the host is declared to have, None for what is found
    + across: where the ranks of several hosts take one step, and nothing else is tested
    """

    mode: Mode
    ranks: int | None
    gpus: int | None
    deadline: int
    allreduce_mib: int
    fingerprint: str | None
    host: str
    output: Path
    compile: bool = True
    across: Across | None = None

    @property
    def logs(self) -> Path:
        """Return the directory for everything that this test writes beside the verdict."""
        return self.output.with_name(f"{self.output.name}.logs")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say in one sentence what is wrong; the full usage is one `--help` away."""
        self.exit(_REFUSED, f"smoke test: {message}; see --help\n")


def parse(arguments: list[str]) -> Options:
    """Return the checked options; leaves with exit code 2 and one sentence on a wrong one."""
    parser = _Parser(
        prog="smoke_test.pyz",
        description="Prove that torch trains on this host, all GPUs together; or rehearse that.",
        epilog="exit codes: 0 passed, 1 passed with warnings, 2 failed, 3 nothing proven about two"
        " GPUs (a rehearsal, one GPU, or something could not be found out)",
    )

    def add(name: str, text: str, **how: Any) -> None:
        parser.add_argument(name, help=text, **how)

    few = _integer(1, MAX_RANKS)
    one_each = "gpu: one rank a GPU, all of them; rehearsal-cpu: no GPU"
    add("--mode", one_each, required=True, choices=(GPU, REHEARSAL_CPU))
    add("--ranks", "without GPUs (default 2); in mode gpu there is one rank a GPU", type=few)
    add("--gpus", "that this host is declared to have; default: those it has", type=few)
    add("--deadline", "seconds (default 180)", type=_integer(10, 3600), default=180)
    mib = _integer(1, 1024)
    add("--allreduce-mib", "the largest all-reduce (default 64, in mode gpu 256)", type=mib)
    off = {"dest": "compile", "action": "store_false"}
    add("--no-compile", "programs here do not use torch.compile", **off)
    add("--fingerprint", "of what the result depends on; goes into the verdict")
    add("--host", "its name in the inventory", default=socket.gethostname())
    add("--output", "the verdict's file (default: in a new directory)", type=_path)
    add("--across", "with which hosts one step is taken, as a deploy asks", type=_across)
    given = vars(parser.parse_args(arguments))
    if given["output"] is None:
        given["output"] = Path(tempfile.mkdtemp(prefix="smoke-test-")) / "verdict.json"
    folder = given["output"].parent
    if not os.access(folder, os.W_OK | os.X_OK):
        parser.error(f"{folder} is no directory in which this user can write")
    if given["allreduce_mib"] is None:
        given["allreduce_mib"] = LARGEST_MIB[given["mode"]]
    if given["ranks"] == 1 and given["mode"] == REHEARSAL_CPU and given["across"] is None:
        parser.error("1 rank is possible only in a step across hosts")
    return Options(**given)


def _integer(low: int, high: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {low} to {high}")
        return int(text)

    return convert


def _path(text: str) -> Path:
    return Path(text).absolute()


def _across(text: str) -> Across:
    try:
        return Across(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise argparse.ArgumentTypeError(f"it is not what a deploy asks: {error}") from None
