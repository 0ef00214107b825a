"""The command `report`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pyinfra_gpu.output import show
from pyinfra_gpu.report.check.cli import EXIT_CODES_TEXT, add_request, look, request_of
from pyinfra_gpu.report.check.render import summary
from pyinfra_gpu.report.html.page import page
from pyinfra_gpu.report.train.asking import ask_all
from pyinfra_gpu.whole_file import replacing


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``report``."""
    parser = subparsers.add_parser(
        "report",
        help="write what `check` shows as an HTML page",
        description="Probe every host as `check` does, and write one HTML page that needs no"
        " network: a table of all hosts, then each host's deviations, versions, smoke test,"
        " training runs and package history.",
        epilog=EXIT_CODES_TEXT,
    )
    add_request(parser)
    text = "the file to write; - prints the page"
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help=text)
    parser.set_defaults(handler=handle)


def handle(options: argparse.Namespace) -> int:
    """Check, write the page, and return the check's exit code; 1 if it cannot be written."""
    target = None if options.output == "-" else Path(options.output).resolve()
    if target and not target.parent.is_dir():  # said before any host is asked
        return _failed(options.output, f"{target.parent} is not a folder")
    if target and target.exists() and not target.is_file():
        return _failed(options.output, "it is not a file; -o - prints the page")
    request = request_of(options)
    answer = look(request)
    runs = () if answer.reasons else ask_all(request, "list", ["--curves"]).hosts
    text = page(answer, {host.name: host for host in runs})
    if target is None:
        return show(text, "report") or answer.exit_code
    try:
        with replacing(target, _mode(target)) as file:  # a web server may be sending it
            file.write(text.encode())
    except OSError as error:
        return _failed(options.output, str(error.strerror))
    print(f"{options.output}: {summary(answer)}")
    for reason in answer.reasons:
        print(f"! {reason}", file=sys.stderr)
    return answer.exit_code


def _failed(output: str, reason: str) -> int:
    print(f"{output} cannot be written: {reason}", file=sys.stderr)
    return 1


def _mode(target: Path) -> int:
    """Return the mode that the file has, or that a new one gets from the umask."""
    if target.exists():
        return target.stat().st_mode & 0o777
    umask = os.umask(0o077)
    os.umask(umask)
    return 0o666 & ~umask
