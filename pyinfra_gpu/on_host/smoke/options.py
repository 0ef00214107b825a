"""The command line: what the caller asks for, checked before anything starts."""

from __future__ import annotations

import argparse
import json
import os
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from . import exactness
from .document import Mode

REHEARSAL_CPU: Final = "rehearsal-cpu"
REHEARSAL_1GPU: Final = "rehearsal-1gpu"
"""One GPU, and one NCCL rank on it: what `--mode gpu` becomes on a host of one GPU."""
GPU: Final = "gpu"
REFUSED = 2
LARGEST_MIB = {GPU: 256, REHEARSAL_1GPU: 256, REHEARSAL_CPU: 64}
"""The largest all-reduce; on a CPU more would take half a minute. pyinfra_gpu.spec reads it too."""


@dataclass(frozen=True)
class Across:
    """A step across hosts, as it is asked of each of them; the controller gives it as JSON.

    + hosts: all of them; the first one serves torchrun's store
    + world_size: the ranks of all hosts together
    + address: of the first one, by IPv4 or IPv6
    + run_id: the same on all hosts of one run
    """

    hosts: tuple[str, ...]
    world_size: int
    address: str
    port: int
    run_id: str


@dataclass(frozen=True)
class Options:
    """One smoke test as asked for; paths are absolute, the deadline is in seconds.

    + gpus: how many GPUs the host is declared to have, None for what is found
    + fingerprint: what the result depends on, None for a test by hand
    + compile: whether programs on this host are meant to use torch.compile
    + limit_network: whether others should be kept out of what the test listens at
    + across: where this is one host's part of a step across hosts, and nothing else
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
    limit_network: bool = True
    across: Across | None = None

    @property
    def logs(self) -> Path:
        """Return the directory for everything that this test writes beside the verdict."""
        return self.output.with_name(f"{self.output.name}.logs")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say in one sentence what is wrong; the full usage is one `--help` away."""
        self.exit(REFUSED, f"smoke test: {message}; see --help\n")


_EPILOG = """\
by hand, on the host:  VENV/bin/python smoke_test.pyz --mode gpu
exit codes:  0 passed   1 passed with warnings   2 failed   3 nothing proven about two GPUs
             (a rehearsal, one GPU, or something could not be found out)
"""


def parse(arguments: list[str]) -> Options:
    """Return the checked options; leaves with exit code 2 and one sentence on a wrong one."""
    parser = _parser()
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


def _parser() -> _Parser:
    parser = _Parser(
        prog="smoke_test.pyz",
        description="Prove that torch trains on this host, all GPUs together; or rehearse that.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, few = parser.add_argument, _integer(1, exactness.MAX_RANKS)
    add(
        "--mode",
        required=True,
        choices=(GPU, REHEARSAL_CPU),
        help="gpu: one rank a GPU, all of them; rehearsal-cpu: no GPU",
    )
    add("--ranks", type=few, help="without GPUs (default 2); in mode gpu there is one rank a GPU")
    add("--gpus", type=few, help="that this host is declared to have; default: those it has")
    add("--deadline", type=_integer(10, 3600), default=180, help="seconds (default 180)")
    add(
        "--allreduce-mib",
        type=_integer(1, 1024),
        help="the largest all-reduce (default 64, in mode gpu 256)",
    )
    add(
        "--no-compile",
        dest="compile",
        action="store_false",
        help="leave torch.compile out: programs on this host do not use it",
    )
    add(
        "--open-network",
        dest="limit_network",
        action="store_false",
        help="others may connect to what the test listens at: nothing is said about it",
    )
    add("--fingerprint", help="goes into the verdict")
    name = socket.gethostname()
    add("--host", default=name, help="its name in the inventory (default: its hostname)")
    add("--output", type=_path, help="the verdict's file (default: in a new directory)")
    add("--across", type=_across, help="one host's part of a step across hosts, as a deploy asks")
    return parser


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
        given = json.loads(text)
        return Across(**{**given, "hosts": tuple(given["hosts"])})
    except (ValueError, TypeError, KeyError) as error:
        raise argparse.ArgumentTypeError(f"it is not what a deploy asks: {error}") from None
