"""The programs of `on_host/packages`, as command lines."""

from __future__ import annotations

import shlex
from functools import cache
from importlib.resources import files


@cache
def text(name: str) -> str:
    """Return the text of a program without its comments, as it travels to a host.

    + name: its path below `on_host/packages`, e.g. "apt/guard.sh"
    """
    path = files("pyinfra_gpu") / "on_host" / "packages" / name
    lines = path.read_text(encoding="ascii").splitlines(keepends=True)
    return "".join(line for line in lines if not line.lstrip("\t").startswith(("# ", "#\n")))


def program(name: str, *arguments: str) -> str:
    """Return the command line that runs a program with these arguments.

    + name: its path below `on_host/packages`; its own words begin with the file's name
    """
    return shlex.join(["sh", "-c", text(name), name.rpartition("/")[2], *arguments])
