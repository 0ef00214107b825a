"""`train logs`: what one rank printed, and with -f what it prints, until its run has ended."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

from .. import rundir
from ..rundir import Run
from ..running.logs import KEPT
from ..site import Site
from .listing import log_path

_LOOK_S = 0.3


def show(site: Site, asked: argparse.Namespace) -> int:
    """Print a log; return the exit code."""
    run = rundir.chosen(site, asked.run)
    path = log_path(run, None if asked.launcher else asked.rank, asked.attempt)
    if not asked.follow:
        for number in range(KEPT, 0, -1):
            _print(path.with_name(f"{path.name}.{number}"))
        _print(path)
        return 0
    return _followed(run, path)


def _print(path: Path) -> None:
    if path.exists():
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.flush()


def _followed(run: Run, path: Path) -> int:
    """Print what is there and what comes; a file that was rotated is read to its end first."""
    at, known = 0, None
    while True:
        ended = not run.alive()
        try:
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                if known not in (None, status.st_ino):
                    at = 0
                known = status.st_ino
                file.seek(at)
                shutil.copyfileobj(file, sys.stdout.buffer)
                at = file.tell()
            sys.stdout.flush()
        except FileNotFoundError:
            pass
        if ended:
            document = run.settled()
            print(f"run {run.name} has ended: {rundir.outcome(document)}", file=sys.stderr)
            return 0
        time.sleep(_LOOK_S)
