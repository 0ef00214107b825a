"""What a shell offers where somebody presses Tab: argcomplete asks the program's own parser.

The shell's part is printed by `completion SHELL` and runs the program anew at each Tab, so what is
offered is always of this version, and of the runs and presets that there are now.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

SHELLS = ("bash", "zsh", "fish")
HELP = "print what lets a shell complete this program's words"


def add_shell(parser: argparse.ArgumentParser) -> None:
    """Add the one argument of the command `completion`."""
    parser.add_argument("shell", choices=SHELLS, help=", ".join(SHELLS))


def shell_code(program: str, shell: str) -> str:
    """Return the lines that a shell is to read."""
    from argcomplete.shell_integration import shellcode

    return str(shellcode([program], shell=shell))


def is_asked() -> bool:
    """Tell whether a shell asks what may stand next."""
    return "_ARGCOMPLETE" in os.environ


def answer(parser: argparse.ArgumentParser, hidden: Sequence[str] = ()) -> None:
    """End the program with what may stand next, where a shell asks for that.

    + hidden: words that are not for people
    """
    if is_asked():
        import argcomplete

        argcomplete.autocomplete(parser, exclude=hidden)
