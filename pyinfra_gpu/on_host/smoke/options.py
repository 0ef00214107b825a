"""The command line: what the caller asks for, checked before anything starts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from . import exactness

REHEARSAL_CPU = "rehearsal-cpu"
MODES_TO_COME = ("gpu", "rehearsal-1gpu")
REFUSED = 2


@dataclass(frozen=True)
class Options:
    """One smoke test as asked for; paths are absolute, the deadline is in seconds."""

    mode: str
    ranks: int
    deadline: int
    allreduce_mib: int
    fingerprint: str
    host: str
    output: Path
    stamp: Path


@dataclass(frozen=True)
class WorkerOptions:
    """What one rank needs to know; the rest comes from torchrun's environment."""

    directory: Path
    launcher_pid: int
    ranks: int
    deadline: int
    allreduce_mib: int


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say in one sentence what is wrong; the full usage is one `--help` away."""
        self.exit(REFUSED, f"smoke test: {message}; see --help\n")


def parse(arguments: list[str]) -> Options | WorkerOptions:
    """Return the checked options; leaves with exit code 2 and one sentence on a wrong one."""
    if sys.version_info < (3, 10):  # noqa: UP036 - the host's Python, not the controller's
        found = ".".join(map(str, sys.version_info[:2]))
        _Parser().error(f"Python {found} is too old, use the virtual environment's (>= 3.10)")
    if arguments[:1] == ["--worker"]:
        return _parse_worker(arguments)
    parser = _launcher_parser()
    given = parser.parse_args(arguments)
    if given.mode in MODES_TO_COME:
        parser.error(f"--mode {given.mode} is not available yet, use --mode {REHEARSAL_CPU}")
    if sys.platform != "linux":
        parser.error(f"needs Linux (it proves what it says from /proc), this is {sys.platform}")
    for path in (given.output, given.stamp):
        if not path.parent.is_dir():
            parser.error(f"the directory {path.parent} does not exist, create it first")
    if given.output.parent.resolve() != given.stamp.parent.resolve():
        parser.error("--output and --stamp must be in the same directory")
    return Options(**vars(given))


def _launcher_parser() -> _Parser:
    parser = _Parser(prog="smoke_test.pyz", description="Prove that torch trains on this host.")
    parser.add_argument("--mode", required=True, choices=(REHEARSAL_CPU, *MODES_TO_COME))
    parser.add_argument("--ranks", type=_integer(2, exactness.MAX_RANKS), default=2)
    parser.add_argument("--deadline", type=_integer(10, 3600), default=180, help="seconds")
    parser.add_argument("--allreduce-mib", type=_power_of_two(1, 1024), default=64)
    parser.add_argument("--fingerprint", type=_hexadecimal, required=True)
    parser.add_argument("--host", required=True, help="the host's name in the inventory")
    parser.add_argument("--output", type=_absolute, required=True, help="the verdict's file")
    parser.add_argument("--stamp", type=_absolute, required=True, help="written on a pass only")
    return parser


def _parse_worker(arguments: list[str]) -> WorkerOptions:
    parser = _Parser(prog="smoke_test.pyz --worker", add_help=False)
    parser.add_argument("--worker", dest="directory", type=Path, required=True)
    for name in ("--launcher-pid", "--ranks", "--deadline", "--allreduce-mib"):
        parser.add_argument(name, type=int, required=True)
    return WorkerOptions(**vars(parser.parse_args(arguments)))


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


def _hexadecimal(text: str) -> str:
    if not text or set(text) - set("0123456789abcdef"):
        raise argparse.ArgumentTypeError(f"{text!r} is not lower-case hexadecimal")
    return text


def _absolute(text: str) -> Path:
    path = Path(text)
    if not path.is_absolute():
        raise argparse.ArgumentTypeError(f"{text!r} is not an absolute path")
    return path
