"""Entry: `python smoke_test.pyz OPTIONS` starts the launcher; other first words are its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

_USAGE = """\
usage: smoke_test.pyz '{"mode": "gpu", "output": "/tmp/verdict.json"}'
What else can be asked is in smoke/options.py; a verdict has the command that repeats its test.
Exit codes: 0 passed, 1 passed with warnings, 2 failed, 3 nothing is proven about two GPUs (one GPU,
none, or something could not be found out)."""


def main() -> int:
    """Run what the command line asks for and return the exit code."""
    word, arguments = (sys.argv[1] if len(sys.argv) > 1 else ""), sys.argv[2:]
    from . import launcher, options, worker

    if word == "--rank":
        return worker.main(arguments[0])
    if word == "--torchrun":
        return worker.agent(arguments[0], arguments[1:])
    try:
        asked = options.Options(**json.loads(word))
    except (ValueError, TypeError) as error:
        print(f"this is not what a smoke test can be asked: {error}\n{_USAGE}", file=sys.stderr)
        return 2
    return launcher.main(asked, bundle=Path(__file__).parents[1])


if __name__ == "__main__":
    sys.exit(main())
