"""`pyinfra-gpu`: the verbs around pyinfra, with honest exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import cast

from pyinfra_gpu import __version__, rehearse
from pyinfra_gpu.rehearsal.cli import add_parser as add_rehearsal


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    parser = argparse.ArgumentParser(
        prog="pyinfra-gpu",
        description="From bare machines with NVIDIA GPUs to a proven training step."
        " The deploy itself is pyinfra's: pyinfra inventories/lab.py deploy.py",
    )
    parser.add_argument("--version", action="version", version=f"pyinfra-gpu {__version__}")
    subparsers = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    rehearse.add_parser(subparsers)
    add_rehearsal(subparsers)
    options = parser.parse_args(arguments)
    try:
        return cast(int, options.handler(options))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
