"""What a shell offers where somebody presses Tab: argcomplete asks the program's own parser.

The shell's part is printed by `completion SHELL` and runs the program anew at each Tab, so what is
offered is always of this version, and of the runs and presets that there are now.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

SHELLS = ("bash", "zsh", "fish")
_FILES = ("INVENTORY", "FILE", "FOLDER")
"""What help calls an argument that is a path; or it is read as one."""

HELP = "print what lets a shell complete this program's words"


def add_shell(parser: argparse.ArgumentParser) -> None:
    """Add the one argument of the command `completion`."""
    parser.add_argument("shell", choices=SHELLS, help=", ".join(SHELLS))


def shell_code(program: str, shell: str) -> str:
    """Return the lines that a shell is to read."""
    from argcomplete.shell_integration import shellcode

    # Without its defaults: bash would offer files wherever there is nothing to offer.
    return str(shellcode([program], shell=shell, use_defaults=False))


def is_asked() -> bool:
    """Tell whether a shell asks what may stand next."""
    return "_ARGCOMPLETE" in os.environ


def offer(action: argparse.Action, what: object) -> None:
    """Have an argument be completed by what a function of argcomplete's form returns."""
    action.completer = what  # type: ignore[attr-defined]  # argcomplete reads it


def answer(parser: argparse.ArgumentParser, hidden: Sequence[str] = ()) -> None:
    """End the program with what may stand next, where a shell asks for that.

    + hidden: words that are not for people
    """
    if is_asked():
        if "--" in os.environ.get("COMP_LINE", "").split(" ")[:-1]:
            raise SystemExit(0)  # what is behind it is for another program
        import argcomplete

        _offer_files_only_where_they_are_meant(parser)
        argcomplete.autocomplete(parser, exclude=hidden)


def _offer_files_only_where_they_are_meant(parser: argparse.ArgumentParser) -> None:
    """Have an argument that is no file offer none, which argcomplete does unless told otherwise."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                _offer_files_only_where_they_are_meant(each)
        elif not (action.choices or hasattr(action, "completer") or _is_file(action)):
            action.completer = _nothing  # type: ignore[attr-defined]  # argcomplete reads it


def _is_file(action: argparse.Action) -> bool:
    return action.type is Path or action.metavar in _FILES


def _nothing(**_: object) -> list[str]:
    return []
