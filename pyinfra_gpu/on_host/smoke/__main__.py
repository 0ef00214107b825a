"""Entry: `python smoke_test.pyz --mode ... ` starts the launcher, `--worker` one rank."""

from __future__ import annotations

import sys
from pathlib import Path

from . import options


def main() -> int:
    """Run what the command line asks for and return the exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] in (["--across"], ["--across-worker"]):
        from .launcher import across

        return (across.main if arguments[0] == "--across" else across.worker)(arguments)
    asked = options.parse(arguments)
    if isinstance(asked, options.WorkerOptions):
        from .ranks import worker

        return worker.run(asked)
    if isinstance(asked, options.SingleOptions):
        from .checks import single

        return single.start(asked) if asked.device is None else single.run(asked)
    if isinstance(asked, options.PrecisionOptions):
        from .gpu import precision

        return precision.main(asked.format, asked.device)
    from .launcher import run

    return run.run(asked, bundle=Path(__file__).parents[1])


if __name__ == "__main__":
    sys.exit(main())
