"""`pyinfra-gpu`: the verbs around pyinfra, with honest exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn, cast

from pyinfra_gpu import __version__
from pyinfra_gpu.diagnosis.cli import add_parser as add_explain
from pyinfra_gpu.report.check.cli import add_parser as add_check
from pyinfra_gpu.report.html.cli import add_parser as add_report
from pyinfra_gpu_rehearsal import rehearse
from pyinfra_gpu_rehearsal.cli import add_parser as add_rehearsal


class _Parser(argparse.ArgumentParser):
    """Ends with 1 on wrong usage; argparse's own 2 would say "drift" to whoever runs `check`."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code: 0 done, 1 failed, 130 interrupted.

    `check` and `report` also answer 2 (drift) and 3 (only a restart is owed), `explain` 2 (nothing
    known explains the log).
    """
    parser: argparse.ArgumentParser = _Parser(
        prog="pyinfra-gpu",
        description="From bare machines with NVIDIA GPUs to a proven training step."
        " The deploy itself is pyinfra's: pyinfra inventories/lab.py deploy.py",
    )
    parser.add_argument("--version", action="version", version=f"pyinfra-gpu {__version__}")
    subparsers = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    add_check(subparsers)
    add_report(subparsers)
    add_explain(subparsers)
    rehearse.add_parser(subparsers)
    add_rehearsal(subparsers)
    options = parser.parse_args(arguments)
    try:
        return cast(int, options.handler(options))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
