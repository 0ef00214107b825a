"""`pyinfra-gpu`: the commands around pyinfra, with honest exit codes.

Only the command that was typed is imported: all of them take half a second, in which Ctrl-C would
end in a traceback of whatever was being imported.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn, cast

from pyinfra_gpu import __version__, completion
from pyinfra_gpu.on_host.train.presets import nearest
from pyinfra_gpu.output import show

REHEARSAL_HELP = "make throwaway hosts with simulated GPUs, to try a deploy"
_COMMANDS = {
    "check": "report.check.cli",
    "report": "report.html.page",
    "explain": "explain.cli",
    "train": "report.train.cli",
    "lock": "locking.cli",
    "collect": "report.collect.cli",
    "remove": "remove",
    "rehearsal": "",
    "completion": "",
}
"""Command -> the module that adds it, in the order of `--help`."""


class _Parser(argparse.ArgumentParser):
    """Ends with 1 on wrong usage; argparse's own 2 would say "drift" to whoever runs `check`."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 130 interrupted.

    `check` and `report` also answer 2 (drift) and 3 (only a restart is pending), `explain` 2
    (nothing known explains the log), `train` 2 (a run is wrong, or the command line is).
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        parser = _parser(words)
        completion.answer(parser)
        if words[:1] == ["rehearsal"]:
            return _rehearsal(words[1:])
        if words and not words[0].startswith("-") and words[0] not in _COMMANDS:
            hint = nearest(words[0], [*_COMMANDS], "commands are")
            parser.error(f"there is no command {words[0]!r:.80}: {hint}")
        if words[:1] == ["train"]:  # what stands behind `--` is for the hosts' launchers
            from pyinfra_gpu.report.train.cli import parsed

            options = parsed(parser, words)
        else:
            options = parser.parse_args(words)
        return cast(int, options.handler(options))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of the command that was typed, or of all where none is named."""
    parser: argparse.ArgumentParser = _Parser(
        prog="pyinfra-gpu",
        description="Commands for machines with NVIDIA GPUs, beside the deploy itself, which is"
        " run by pyinfra: pyinfra inventories/lab.py deploy.py",
    )
    parser.add_argument("--version", action="version", version=f"pyinfra-gpu {__version__}")
    commands = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    alone = words and words[0] in _COMMANDS and not completion.is_asked()
    for name in [words[0]] if alone else _COMMANDS:
        _add(name, commands)
    return parser


def _add(name: str, commands: Any) -> None:
    """Add a command to the parser."""
    if name == "rehearsal":
        commands.add_parser(name, help=REHEARSAL_HELP)
    elif name == "completion":
        shells = commands.add_parser(name, help=completion.HELP, description=completion.HELP)
        shells.add_argument("shell", choices=completion.SHELLS)
        shells.set_defaults(handler=lambda o: show(completion.shell_code(o.shell), name))
    else:
        import_module(f"pyinfra_gpu.{_COMMANDS[name]}").add_parser(commands)


def _rehearsal(words: Sequence[str]) -> int:
    """Run a command of the throwaway hosts, which are a package beside this one."""
    try:
        from pyinfra_gpu_rehearsal.cli import run_command
    except ModuleNotFoundError as error:
        if error.name != "pyinfra_gpu_rehearsal":
            raise
        text = "the throwaway hosts are not installed: run `pip install 'pyinfra-gpu[rehearsal]'`"
        print(text, file=sys.stderr)
        return 1
    return run_command(_Parser(prog="pyinfra-gpu rehearsal", description=REHEARSAL_HELP), words)
