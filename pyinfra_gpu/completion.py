"""What a shell offers where somebody presses Tab: click's completion, of the program's own parser.

The shell's part is printed by `completion SHELL` and runs the program anew at each Tab, so what is
offered is always of this version, and of the runs and presets that there are now.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class, shell_complete

SHELLS = ("bash", "zsh", "fish")
HELP = "print the shell's completion of this program"
_PROGRAM, _ASKS = "pyinfra-gpu", "_PYINFRA_GPU_COMPLETE"
_FILES = ("INVENTORY", "FILE", "FOLDER")
"""What help calls an argument that is a path; or it is read as one."""


def shell_code(shell: str) -> str:
    """Return the lines that a shell is to read."""
    found = get_completion_class(shell)
    return found(click.Command(_PROGRAM), {}, _PROGRAM, _ASKS).source() if found else ""


def is_asked() -> bool:
    """Tell whether a shell asks what may stand next."""
    return _ASKS in os.environ


def offer(action: argparse.Action, words: Callable[[argparse.Namespace], Iterable[str]]) -> None:
    """Have an argument be completed by what a function returns of the words before it."""
    action.words = words  # type: ignore[attr-defined]


def answer(parser: argparse.ArgumentParser) -> None:
    """End the program with what may stand next, where a shell asks for that."""
    if is_asked():
        if "--" in os.environ.get("COMP_WORDS", "").split()[:-1]:
            raise SystemExit(0)  # what is behind it is for another program
        instruction = os.environ[_ASKS]
        raise SystemExit(shell_complete(_command("", parser), {}, _PROGRAM, _ASKS, instruction))


def _command(name: str, parser: argparse.ArgumentParser) -> click.Command:
    """Return a parser as click sees it, as far as completion needs that."""
    params: list[click.Parameter] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            commands = {each: _command(each, sub) for each, sub in action.choices.items()}
            return click.Group(name, commands=commands, params=params, add_help_option=False)
        shared: dict[str, Any] = {"type": _type(action), "shell_complete": _completer(action)}
        if not action.option_strings:
            params.append(click.Argument([action.dest], required=False, **shared))
            continue
        names = [*action.option_strings, action.dest.replace("-", "_")]
        if action.nargs == 0:
            params.append(click.Option(names, is_flag=True, help=action.help))
        else:
            multiple = isinstance(action, argparse._AppendAction)
            params.append(click.Option(names, multiple=multiple, help=action.help, **shared))
    return click.Command(name, params=params, add_help_option=False)


def _type(action: argparse.Action) -> click.ParamType[Any] | None:
    if action.choices:
        return click.Choice([str(each) for each in action.choices])
    return click.Path() if action.type is Path or action.metavar in _FILES else None


def _completer(action: argparse.Action) -> Any:
    words = getattr(action, "words", None)
    if words is None:
        return None

    def complete(context: click.Context, _: object, begun: str) -> list[CompletionItem]:
        # Behind an option that has no value yet click leaves what stood before it unnamed.
        names = (each.name for each in context.command.params if isinstance(each, click.Argument))
        unnamed = zip(names, context.args, strict=False)
        found = words(argparse.Namespace(**{**context.params, **dict(unnamed)}))
        return [CompletionItem(each) for each in found if each.startswith(begun)]

    return complete
