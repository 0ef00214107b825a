"""`run FOLDER` builds, `inside` tries the torch of its own Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import prove
from .plan import Place
from .run import build


def main() -> int:
    """Do what the first word says."""
    words = sys.argv[1:]
    os.umask(0o022)
    if words == ["inside"]:
        return prove.inside()
    if len(words) == 2 and words[0] == "run":
        return build(Place(Path(words[1])), str(Path(sys.argv[0]).absolute()))
    sys.stderr.write("usage: build.pyz run FOLDER\n")
    return 2
