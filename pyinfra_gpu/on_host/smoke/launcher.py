"""The launcher's process, which is told by signals to stop."""

from __future__ import annotations

import signal
import traceback
from pathlib import Path

from . import part, verdict
from .options import Options
from .run import Test
from .verdict import Announcer


def main(options: Options, bundle: Path) -> int:
    """Run the whole smoke test as asked for; return the process's exit code."""
    announcer, signals = Announcer(options.mode), list[str]()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda told, _: signals.append(signal.Signals(told).name))

    def interruption() -> str | None:
        return next(iter(signals), None)

    try:
        if options.across is not None:
            return part.HostPart(options, options.across, bundle, announcer, interruption).run()
        return Test(options, bundle, interruption).run()
    except OSError as error:
        announcer.say(f"the smoke test could not be run or recorded: {error}")
    except Exception as error:  # an exit code of 1, Python's own, would mean "degraded"
        traceback.print_exc()
        announcer.say(f"the smoke test has a defect: {type(error).__name__}: {error}")
    return verdict.FAILED
