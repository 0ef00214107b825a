"""`run FOLDER` builds, `inside` tries the torch of its own Python."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from . import prove, steps


def main() -> int:
    """Do what the first word says."""
    os.umask(0o022)
    if sys.argv[1:] == ["inside"]:
        return prove.inside()
    _, folder = sys.argv[1:]
    program = Path(sys.argv[0]).absolute()
    return steps.build(Path(folder), partial(prove.prove, program=str(program)))
