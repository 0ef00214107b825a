"""`python -m pyinfra_gpu_rehearsal up 2`: the verb `rehearsal` without the other verbs."""

from __future__ import annotations

import argparse

from pyinfra_gpu_rehearsal.cli import add_commands


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m pyinfra_gpu_rehearsal")
    add_commands(parser)
    arguments = parser.parse_args()
    code: int = arguments.handler(arguments)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
