"""Where a process of the test stands, written by itself when it is asked (SIGUSR1)."""

from __future__ import annotations

import faulthandler
import signal
from pathlib import Path


def stack_file(directory: Path, kind: str, number: int) -> Path:
    """Return the file for the stacks of process `number` of `kind`."""
    return directory / f"{kind}{number}.stack"


def offer_stacks(directory: Path, kind: str, number: int) -> None:
    """Have this process write the stacks of all its threads to its file when it is asked to.

    A file of its own, which neither a full log nor whoever holds standard error can keep from it.
    """
    file = stack_file(directory, kind, number).open("w")
    faulthandler.register(signal.SIGUSR1, file=file, all_threads=True)
