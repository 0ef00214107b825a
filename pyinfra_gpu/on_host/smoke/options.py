"""The command line: what the caller asks for, checked before anything starts."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from . import exactness

REHEARSAL_CPU = "rehearsal-cpu"
REHEARSAL_1GPU = "rehearsal-1gpu"
GPU = "gpu"
MODES = (GPU, REHEARSAL_1GPU, REHEARSAL_CPU)
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
    + limit_network: whether to keep others out of what the test listens at, where that is possible
    + across: where this is one host's part of a step across hosts, and nothing else
    """

    mode: str
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


@dataclass(frozen=True)
class WorkerOptions:
    """What one rank needs to know; the rest comes from torchrun's environment.

    + compiled: whether torch.compile works here
    + measure: the measurements to make, in their order; see `Check.by`
    """

    directory: Path
    launcher_pid: int
    mode: str
    deadline: int
    allreduce_mib: int
    compiled: bool
    measure: tuple[str, ...]


@dataclass(frozen=True)
class SingleOptions:
    """What the starter of the processes that try one device each needs to know, and these."""

    directory: Path
    launcher_pid: int
    mode: str
    devices: int
    device: int | None


@dataclass(frozen=True)
class PrecisionOptions:
    """One format of the precision ladder, on one device."""

    format: str
    device: int


@dataclass(frozen=True)
class ConcludeOptions:
    """What is to become of a judged step across hosts, whose verdict comes by standard input."""

    output: Path


Asked = Options | WorkerOptions | SingleOptions | PrecisionOptions | ConcludeOptions


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say in one sentence what is wrong; the full usage is one `--help` away."""
        self.exit(REFUSED, f"smoke test: {message}; see --help\n")


def parse(arguments: list[str]) -> Asked:
    """Return the checked options; leaves with exit code 2 and one sentence on a wrong one."""
    if sys.version_info < (3, 10):  # noqa: UP036 - the host's Python, not the controller's
        found = ".".join(map(str, sys.version_info[:2]))
        _Parser().error(f"Python {found} is too old, use the virtual environment's (>= 3.10)")
    if internal := _INTERNAL.get(arguments[0] if arguments else ""):
        return internal(arguments)
    parser = _launcher_parser()
    given = parser.parse_args(arguments)
    if sys.platform != "linux":
        parser.error(f"needs Linux (it proves what it says from /proc), this is {sys.platform}")
    if given.output is None:
        given.output = Path(tempfile.mkdtemp(prefix="smoke-test-")) / "verdict.json"
    across = _across(parser, given)
    _check_folder(parser, given.output.parent)
    if given.allreduce_mib is None:
        given.allreduce_mib = LARGEST_MIB[given.mode]
    return Options(**vars(given), across=across)


def _across(parser: _Parser, given: argparse.Namespace) -> Across | None:
    """Take the options of a step across hosts out of `given`; None where there are none."""
    words = {
        name: vars(given).pop(name) for name in ("hosts", "world_size", "rdzv_endpoint", "run_id")
    }
    if not any(words.values()):
        if given.ranks == 1:
            parser.error("1 rank is possible only in a step across hosts")
        return None
    if not all(words.values()) or given.ranks is None:
        parser.error("--hosts, --world-size, --rdzv-endpoint, --run-id and --ranks go together")
    if given.mode == REHEARSAL_1GPU:
        parser.error(f"a step across hosts cannot run as {given.mode}")
    hosts = tuple(words["hosts"].split(","))
    if given.host not in hosts or len(set(hosts)) < max(len(hosts), 2):
        parser.error(f"{given.host} is not one of several hosts {', '.join(hosts)}")
    if given.ranks >= words["world_size"]:
        parser.error(f"--world-size {words['world_size']} leaves no rank to the other hosts")
    return Across(hosts, words["world_size"], tuple(words["rdzv_endpoint"]), words["run_id"])


def _check_folder(parser: _Parser, folder: Path) -> None:
    if not folder.is_dir():
        parser.error(f"the directory {folder} does not exist, create it first")
    if not os.access(folder, os.W_OK):
        parser.error(f"the directory {folder} is not writable for this user")


_EPILOG = """\
by hand, on the host:  VENV/bin/python smoke_test.pyz --mode gpu
exit codes:  0 passed   1 passed with warnings   2 failed   3 nothing proven about two GPUs
             (a rehearsal, one GPU, or something could not be found out)
"""


def _launcher_parser() -> _Parser:
    parser = _Parser(
        prog="smoke_test.pyz",
        description="Prove that torch trains on this host, all GPUs together; or rehearse that.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--mode",
        required=True,
        choices=MODES,
        help="gpu: one rank a GPU; rehearsal-1gpu: two ranks on one GPU; rehearsal-cpu: no GPU",
    )
    parser.add_argument(
        "--ranks",
        type=_integer(1, exactness.MAX_RANKS),
        help="of a rehearsal (default 2); in mode gpu there is one rank a GPU",
    )
    parser.add_argument(
        "--gpus",
        type=_integer(1, exactness.MAX_RANKS),
        help="that this host is declared to have; default: those that are there",
    )
    parser.add_argument(
        "--deadline", type=_integer(10, 3600), default=180, help="seconds (default 180)"
    )
    _add_parts(parser)
    _add_files(parser)
    _add_across(parser)
    return parser


def _add_parts(parser: _Parser) -> None:
    parser.add_argument(
        "--allreduce-mib",
        type=_power_of_two(1, 1024),
        help="the largest all-reduce (default 64, in mode gpu 256)",
    )
    parser.add_argument(
        "--no-compile",
        dest="compile",
        action="store_false",
        help="leave torch.compile out: programs on this host do not use it",
    )
    parser.add_argument(
        "--open-network",
        dest="limit_network",
        action="store_false",
        help="leave out the network namespace that keeps others out of what the test listens at",
    )


def _add_files(parser: _Parser) -> None:
    parser.add_argument("--fingerprint", type=_hexadecimal, help="goes into the verdict")
    parser.add_argument(
        "--host", default=socket.gethostname(), help="its name in the inventory (default hostname)"
    )
    parser.add_argument(
        "--output", type=_absolute, help="the verdict's file (default: in a new directory)"
    )


def _add_across(parser: _Parser) -> None:
    group = parser.add_argument_group(
        "one host's part of a step across hosts",
        "A token, the same 32 or more hexadecimal digits on all hosts, is read on standard input.",
    )
    group.add_argument("--hosts", help="the names of all, with commas; the first serves the store")
    group.add_argument("--world-size", type=_integer(2, exactness.MAX_RANKS), help="all ranks")
    group.add_argument(
        "--rdzv-endpoint",
        type=_endpoint,
        action="append",
        metavar="ADDRESS:PORT",
        help="of that store; several, if it is not known which one answers",
    )
    group.add_argument("--run-id", help="the same on all hosts")


def _parse_worker(arguments: list[str]) -> WorkerOptions:
    parser = _internal_parser("--worker")
    for name in ("--deadline", "--allreduce-mib"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--measure", type=lambda text: tuple(text.split(",")), required=True)
    return WorkerOptions(**vars(parser.parse_args(arguments)))


def _parse_single(arguments: list[str]) -> SingleOptions:
    parser = _internal_parser("--single")
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--device", type=int)
    return SingleOptions(**vars(parser.parse_args(arguments)))


def _parse_precision(arguments: list[str]) -> PrecisionOptions:
    parser = _Parser(prog="smoke_test.pyz --gpu-precision", add_help=False)
    parser.add_argument("--gpu-precision", dest="format", required=True)
    parser.add_argument("--device", type=int, required=True)
    return PrecisionOptions(**vars(parser.parse_args(arguments)))


def _parse_conclude(arguments: list[str]) -> ConcludeOptions:
    parser = _Parser(prog="smoke_test.pyz --conclude", add_help=False)
    parser.add_argument("--conclude", dest="output", type=_absolute, required=True)
    return ConcludeOptions(**vars(parser.parse_args(arguments)))


def _internal_parser(word: str) -> _Parser:
    parser = _Parser(prog=f"smoke_test.pyz {word}", add_help=False)
    parser.add_argument(word, dest="directory", type=Path, required=True)
    parser.add_argument("--launcher-pid", type=int, required=True)
    parser.add_argument("--mode", default=REHEARSAL_CPU)
    return parser


_INTERNAL: dict[str, Callable[[list[str]], Asked]] = {
    "--worker": _parse_worker,
    "--single": _parse_single,
    "--gpu-precision": _parse_precision,
    "--conclude": _parse_conclude,
}
"""What the test calls itself with, and what the controller asks beside a test: told by the first
word."""


def _integer(low: int, high: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {low} to {high}")
        return int(text)

    return convert


def _power_of_two(low: int, high: int) -> Callable[[str], int]:
    integer = _integer(low, high)

    def convert(text: str) -> int:
        value = integer(text)
        if value & (value - 1):
            raise argparse.ArgumentTypeError(f"{text!r} is not a power of two {low} to {high}")
        return value

    return convert


def _endpoint(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    if not address or not port.isdigit() or not 0 < int(port) < 2**16:
        raise argparse.ArgumentTypeError(f"{text!r} is not ADDRESS:PORT")
    return address.strip("[]"), int(port)


def _hexadecimal(text: str) -> str:
    if not text or set(text) - set("0123456789abcdef"):
        raise argparse.ArgumentTypeError(f"{text!r} is not lower-case hexadecimal")
    return text


def _absolute(text: str) -> Path:
    path = Path(text)
    if not path.is_absolute():
        raise argparse.ArgumentTypeError(f"{text!r} is not an absolute path")
    return path
