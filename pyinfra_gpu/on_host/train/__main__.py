"""Entry of the launcher; a run's unit and the unit of a boot import nothing of the command line."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Do what the words of the command line say and return the exit code."""
    os.umask(0o077)
    words = sys.argv[1:]
    if words[:1] == ["supervise"] and len(words) == 2:
        from . import host, supervise

        return supervise.supervise(host.load(), words[1])
    from . import cli

    return cli.main(words)


if __name__ == "__main__":
    sys.exit(main())
