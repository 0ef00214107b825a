"""`pyinfra-gpu`: the verbs around pyinfra, with honest exit codes.

Only the verb that was typed is imported, as it is used: all of them take half a second, in which
Ctrl-C would end in a traceback of whatever was being imported.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NoReturn, cast

from pyinfra_gpu import __version__, completion
from pyinfra_gpu.on_host.train.presets import nearest
from pyinfra_gpu.output import show

TRAIN = "train"
REHEARSAL = "rehearsal"
COMPLETION = "completion"
REHEARSAL_HELP = "make throwaway hosts with simulated GPUs, to try a deploy"


def _of(room: str, verbs: Any) -> None:
    """Have a room's own module `cli` add its verb."""
    import_module(f"pyinfra_gpu.{room}.cli").add_parser(verbs)


def _rehearsal_verb(verbs: Any) -> None:
    verbs.add_parser(REHEARSAL, help=REHEARSAL_HELP)


def _completion_verb(verbs: Any) -> None:
    shells = verbs.add_parser(COMPLETION, help=completion.HELP, description=completion.HELP)
    shells.add_argument("shell", choices=completion.SHELLS)
    shells.set_defaults(handler=_completion)


_VERBS: dict[str, Callable[[Any], None]] = {
    "check": partial(_of, "report.check"),
    "report": partial(_of, "report.html"),
    "explain": partial(_of, "explain"),
    TRAIN: partial(_of, "report.train"),
    "lock": partial(_of, "locking"),
    "collect": partial(_of, "report.collect"),
    REHEARSAL: _rehearsal_verb,
    COMPLETION: _completion_verb,
}
"""What adds a verb to the parser, in the order in which `--help` lists them."""


class _Parser(argparse.ArgumentParser):
    """Ends with 1 on wrong usage; argparse's own 2 would say "drift" to whoever runs `check`."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code: 0 done, 1 failed, 130 interrupted.

    `check` and `report` also answer 2 (drift) and 3 (only a restart is pending), `explain` 2
    (nothing known explains the log), `train` 2 (a run is wrong, or the command line is).
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        parser = _parser(words)
        completion.answer(parser)
        if words[:1] == [REHEARSAL]:
            return _rehearsal(words[1:])
        if words and not words[0].startswith("-") and words[0] not in _VERBS:
            hint = nearest(words[0], [*_VERBS], "commands are")
            parser.error(f"there is no command {words[0]!r:.80}: {hint}")
        options = _parsed(parser, words)
        return cast(int, options.handler(options))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of the verb that was typed, or of all where none is named."""
    parser: argparse.ArgumentParser = _Parser(
        prog="pyinfra-gpu",
        description="Commands for machines with NVIDIA GPUs, beside the deploy itself, which is"
        " run by pyinfra: pyinfra inventories/lab.py deploy.py",
    )
    parser.add_argument("--version", action="version", version=f"pyinfra-gpu {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    named = [words[0]] if words and words[0] in _VERBS and not completion.is_asked() else _VERBS
    for name in named:
        _VERBS[name](verbs)
    return parser


def _parsed(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Parse the words; what stands behind `--` is for the hosts' launchers, as it is."""
    if words[:1] != [TRAIN]:
        return parser.parse_args(words)
    from pyinfra_gpu.report.train.cli import parsed

    return parsed(parser, words)


def _completion(options: argparse.Namespace) -> int:
    return show(completion.shell_code(options.shell), COMPLETION)


def _rehearsal(words: Sequence[str]) -> int:
    """Run a command of the throwaway hosts, which are a package beside this one.

    It is the only place that knows that package, and no other verb needs it.
    """
    try:
        from pyinfra_gpu_rehearsal.cli import run_command
    except ModuleNotFoundError as error:
        if error.name != "pyinfra_gpu_rehearsal":
            raise
        print(
            "the throwaway hosts are not installed: run `pip install 'pyinfra-gpu[rehearsal]'`",
            file=sys.stderr,
        )
        return 1
    return run_command(_Parser(prog=f"pyinfra-gpu {REHEARSAL}", description=REHEARSAL_HELP), words)
