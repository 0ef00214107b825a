"""Entry: `python smoke_test.pyz --mode ... ` starts the launcher, `--worker` one rank."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from . import options


def main() -> int:
    """Run what the command line asks for and return the exit code."""
    asked = options.parse(sys.argv[1:])
    if isinstance(asked, options.WorkerOptions):
        from .ranks import worker

        return worker.run(asked)
    if isinstance(asked, options.SingleOptions):
        from .checks import single

        return single.start(asked) if asked.device is None else single.run(asked)
    if isinstance(asked, options.PrecisionOptions):
        from .gpu import precision

        return precision.main(asked.format, asked.device)
    from .launcher import part, run

    if isinstance(asked, options.ConcludeOptions):
        return part.conclude(asked, json.load(sys.stdin))
    return run.run(asked, bundle=Path(__file__).parents[1])


if __name__ == "__main__":
    sys.exit(main())
