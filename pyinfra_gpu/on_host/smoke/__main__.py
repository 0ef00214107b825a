"""Entry: `python smoke_test.pyz --mode ... ` starts the launcher, `--worker` one rank."""

from __future__ import annotations

import sys
from pathlib import Path

from . import options


def main() -> int:
    """Run what the command line asks for and return the exit code."""
    asked = options.parse(sys.argv[1:])
    if isinstance(asked, options.WorkerOptions):
        from . import worker

        return worker.run(asked)
    from . import launcher

    return launcher.run(asked, bundle=Path(__file__).parents[1])


if __name__ == "__main__":
    sys.exit(main())
