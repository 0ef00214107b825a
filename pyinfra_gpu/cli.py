"""`pyinfra-gpu`: the commands around pyinfra, with honest exit codes.

Only the command that was typed is imported: all of them take half a second, in which Ctrl-C would
end in a traceback of whatever was being imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import cast

import click
from click.shell_completion import ShellComplete, get_completion_class

from pyinfra_gpu import __version__
from pyinfra_gpu.output import show

_PROGRAM = "pyinfra-gpu"
_COMMANDS = {
    "check": "pyinfra_gpu.report.check.cli",
    "report": "pyinfra_gpu.report.html.page",
    "explain": "pyinfra_gpu.explain",
    "train": "pyinfra_gpu.report.train.cli",
    "lock": "pyinfra_gpu.locking",
    "collect": "pyinfra_gpu.report.collect",
    "remove": "pyinfra_gpu.remove",
    "rehearsal": "pyinfra_gpu_rehearsal.cli",
    "completion": "pyinfra_gpu.cli",
}
"""Command -> the module whose `command` it is, in the order of `--help`."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        module = import_module(_COMMANDS[name]) if name in _COMMANDS else None
        return cast("click.Command | None", getattr(module, "command", None))


_commands = _Commands(
    _PROGRAM,
    commands=dict.fromkeys(_COMMANDS, click.Command("")),  # proposed for one that is mistyped
    help="Commands for machines with NVIDIA GPUs, beside the deploy itself, which is run by"
    " pyinfra: pyinfra inventories/lab.py deploy.py",
    context_settings={"help_option_names": ["-h", "--help"]},
)
click.version_option(__version__, prog_name=_PROGRAM)(_commands)


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> int:
    """Print the shell's completion of this program."""
    variable = f"_{_PROGRAM.upper().replace('-', '_')}_COMPLETE"  # as click names it
    of_shell = cast(type[ShellComplete], get_completion_class(shell))
    return show(of_shell(_commands, {}, _PROGRAM, variable).source())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 130 interrupted.

    `check` and `report` also answer 2 (drift) and 3 (only a restart is pending), `explain` 2
    (nothing known explains the log), `train` 2 (a run is wrong, or the command line is). Wrong
    usage of the others is 1: to whoever runs `check`, 2 says "drift".
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return int(_commands.main(words, _PROGRAM, standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        return 2 if words[:1] == ["train"] and isinstance(error, click.UsageError) else 1
    except (click.Abort, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        return 130
