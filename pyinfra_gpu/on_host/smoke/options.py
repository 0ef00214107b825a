"""The command line: what the caller asks for, checked before anything starts."""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
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
    """A step across hosts, as it is asked of each of them.

    + hosts: all of them; the first one serves torchrun's store
    + world_size: the ranks of all hosts together
    + endpoints: where that store may be reached, address and port; the first that answers is taken
    + run_id: the same on all hosts of one run
    """

    hosts: tuple[str, ...]
    world_size: int
    endpoints: tuple[tuple[str, int], ...]
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
    if sys.version_info < (3, 10):  # noqa: UP036 - the host's Python, not the controller's
        found = ".".join(map(str, sys.version_info[:2]))
        parser.error(f"Python {found} is too old, use the virtual environment's (>= 3.10)")
    given = vars(parser.parse_args(arguments))
    if sys.platform != "linux":
        parser.error(f"needs Linux (it proves what it says from /proc), this is {sys.platform}")
    if given["output"] is None:
        given["output"] = Path(tempfile.mkdtemp(prefix="smoke-test-")) / "verdict.json"
    folder = given["output"].parent
    if not folder.is_dir():
        parser.error(f"the directory {folder} does not exist, create it first")
    if not os.access(folder, os.W_OK):
        parser.error(f"the directory {folder} is not writable for this user")
    if given["allreduce_mib"] is None:
        given["allreduce_mib"] = LARGEST_MIB[given["mode"]]
    words = [given.pop(name) for name in ("hosts", "world_size", "rdzv_endpoint", "run_id")]
    return Options(**given, across=_across(parser, given, words))


def _across(parser: _Parser, given: dict[str, object], words: list[object]) -> Across | None:
    hosts, world_size, endpoints, run_id = words
    if not any(words):
        if given["ranks"] == 1 and given["mode"] == REHEARSAL_CPU:
            parser.error("1 rank is possible only in a step across hosts")
        return None
    if not (
        isinstance(hosts, str)
        and isinstance(world_size, int)
        and isinstance(endpoints, list)
        and isinstance(run_id, str)
        and isinstance(given["ranks"], int)
    ):
        parser.error("--hosts, --world-size, --rdzv-endpoint, --run-id and --ranks go together")
    names = tuple(hosts.split(","))
    if given["host"] not in names or len(set(names)) < max(len(names), 2):
        parser.error(f"{given['host']} is not one of several hosts {', '.join(names)}")
    if given["ranks"] >= world_size:
        parser.error(f"--world-size {world_size} leaves no rank to the other hosts")
    return Across(names, world_size, tuple(endpoints), run_id)


def _parser() -> _Parser:
    parser = _Parser(
        prog="smoke_test.pyz",
        description="Prove that torch trains on this host, all GPUs together; or rehearse that.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    few = _integer(1, exactness.MAX_RANKS)
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
        type=_power_of_two(1, 1024),
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
    add("--fingerprint", type=_matching("[0-9a-f]+", "hexadecimal"), help="goes into the verdict")
    name = socket.gethostname()
    add("--host", default=name, help="its name in the inventory (default: its hostname)")
    add("--output", type=absolute, help="the verdict's file (default: in a new directory)")
    _add_across(parser)
    return parser


def _add_across(parser: _Parser) -> None:
    add = parser.add_argument_group("one host's part of a step across hosts").add_argument
    add("--hosts", help="the names of all, with commas; the first serves the store")
    add("--world-size", type=_integer(2, exactness.MAX_RANKS), help="all ranks")
    add(
        "--rdzv-endpoint",
        type=_endpoint,
        action="append",
        metavar="ADDRESS:PORT",
        help="of that store; several, if it is not known which one answers",
    )
    add("--run-id", help="the same on all hosts")


def _integer(low: int, high: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {low} to {high}")
        return int(text)

    return convert


def _power_of_two(low: int, high: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        value = _integer(low, high)(text)
        if value & (value - 1):
            raise argparse.ArgumentTypeError(f"{text!r} is not a power of two {low} to {high}")
        return value

    return convert


def _matching(pattern: str, name: str) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise argparse.ArgumentTypeError(f"{text!r} is not {name}")
        return text

    return convert


def _endpoint(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    if not address or not port.isdigit() or not 0 < int(port) < 2**16:
        raise argparse.ArgumentTypeError(f"{text!r} is not ADDRESS:PORT")
    return address.strip("[]"), int(port)


def absolute(text: str) -> Path:
    """Return `text` as an absolute path; for argparse."""
    path = Path(text)
    if not path.is_absolute():
        raise argparse.ArgumentTypeError(f"{text!r} is not an absolute path")
    return path
