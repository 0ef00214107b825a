"""Entry: `python smoke_test.pyz --mode ...` starts the launcher; other first words are its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> int:
    """Run what the command line asks for and return the exit code."""
    word, arguments = (sys.argv[1] if len(sys.argv) > 1 else ""), sys.argv[2:]
    if word == "--rank":
        from . import worker

        return worker.main(arguments[0])
    if word == "--torchrun":
        from . import worker

        return worker.agent(Path(arguments[0]), arguments[1:])
    if word == "--precision":
        from . import precision

        return precision.main(arguments[0])
    if word == "--conclude":
        from . import part

        return part.conclude(Path(arguments[0]), json.load(sys.stdin))
    from . import launcher, options

    return launcher.main(options.parse(sys.argv[1:]), bundle=Path(__file__).parents[1])


if __name__ == "__main__":
    sys.exit(main())
