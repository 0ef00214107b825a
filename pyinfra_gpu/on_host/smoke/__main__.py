"""Entry: `python smoke_test.pyz --mode ...` starts the launcher; other first words are its own."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    """Run what the command line asks for and return the exit code."""
    word, arguments = (sys.argv[1] if len(sys.argv) > 1 else ""), sys.argv[2:]
    from . import launcher, options, worker

    if word == "--rank":
        return worker.main(arguments[0])
    if word == "--torchrun":
        return worker.agent(arguments[0], arguments[1:])
    return launcher.main(options.parse(sys.argv[1:]), bundle=Path(__file__).parents[1])


if __name__ == "__main__":
    sys.exit(main())
