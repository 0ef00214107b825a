"""Entry: `train start`, `train list` and so on; `train supervise RUN` is what the unit runs."""

from __future__ import annotations

import argparse
import os
import sys

from .. import completion
from . import calling, options, room, saying, site
from .errors import TrainError

ENOUGH = 141
"""As the shell has it for a program that a closed pipe ended: 128 + SIGPIPE."""


def main() -> int:
    """Run what the command line asks for, and return the exit code.

    0 done, 1 not, 2 a mistake on the command line (argparse's), 130 interrupted, 141 as `ENOUGH`.
    """
    asked = options.parse(sys.argv[1:])
    return _written(asked.command, _done(asked))


def _done(asked: argparse.Namespace) -> int:
    os.umask(0o077)
    try:
        if asked.command == "completion":
            print(completion.shell_code("train", asked.shell))
            return 0
        return _run(asked.command, site.load(), asked)
    except TrainError as error:
        saying.say(calling.said(str(error)))
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `train logs | head`
        _discard()
        return ENOUGH
    except OSError as error:  # a full disk, a folder that somebody took away
        if error.filename is None and (code := _written(asked.command, 0)):
            return code
        what = f": {error.filename}" if error.filename else ""
        text = f"train {asked.command} cannot go on{what}: {error.strerror}{room.remedy(error)}"
        saying.say(text)
        return 1


def _written(command: str, code: int) -> int:
    """Write what is left of the answer; return the exit code, another one if that cannot be."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard()
        return ENOUGH
    except OSError as error:
        _discard()
        print(f"train {command}: the answer cannot be written: {error.strerror}", file=sys.stderr)
        return code or 1
    return code


def _discard() -> None:
    """Have Python's own flush at its end go nowhere: it would complain again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _run(command: str, here: site.Site, asked: argparse.Namespace) -> int:
    """Import what this command needs, and nothing more: it is read anew at each start."""
    if command in ("start", "resume"):
        from .commands import start

        return (start.start if command == "start" else start.resume)(here, asked)
    if command == "try":
        from .commands import trying

        return trying.try_presets(here, asked)
    if command == "list":
        from .commands import listing

        return listing.show(here, as_json=asked.json, everything=asked.all, curves=asked.curves)
    if command in ("watch", "why"):
        from .commands import telling

        return (telling.watch if command == "watch" else telling.why)(here, asked)
    if command == "logs":
        from .commands import logs

        return logs.show(here, asked)
    if command == "stop":
        from .commands import stop

        return stop.stop(here, asked.run, across=asked.across)
    if command == "again":
        from .commands import again

        return again.again(here)
    from .rundir import Run
    from .running import supervisor

    return supervisor.supervise(here, Run(here.runs / asked.run))


if __name__ == "__main__":
    sys.exit(main())
