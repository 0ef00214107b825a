"""`run FOLDER` builds, `watch FOLDER` follows, `inside` tries the torch of its own Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import inside, watch
from .place import Place
from .run import build


def main() -> int:
    """Do what the first word says."""
    words = sys.argv[1:]
    os.umask(0o022)
    if words == ["inside"]:
        return inside.main()
    if len(words) == 2 and words[0] == "watch":
        return watch.watch(Place(Path(words[1])))
    if len(words) == 2 and words[0] == "run":
        program = str(Path(sys.argv[0]).absolute())
        os.chdir(words[1])
        return build(Place(Path(words[1])), program)
    sys.stderr.write("usage: build.pyz run|watch FOLDER\n")
    return 2
