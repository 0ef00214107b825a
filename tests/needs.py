"""What the tests run on this machine, beside Python: installed as root with apt, or named."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

from pyinfra_gpu_rehearsal import LabError
from pyinfra_gpu_rehearsal.requirements import install_packages, missing_packages

# Program -> the Debian package it is in. Every shell that a host may have, for the probe, or that a
# user may log in to; and what packages are made and compared with.
PROGRAMS = {
    "awk": "mawk",
    "bash": "bash",
    "busybox": "busybox",
    "dash": "dash",
    "dpkg-deb": "dpkg",
    "fish": "fish",
    "git": "git",
    "git-lfs": "git-lfs",
    "ps": "procps",
    "rbash": "bash",
    "tcsh": "tcsh",
    "zsh": "zsh",
}
COMPILER = {"g++": "g++"}
"""For torch.compile, whose code also includes Python's own header."""


def missing(*, everything: bool) -> list[str]:
    """Return the Debian packages that are needed and not there.

    + everything: also what the tests on hosts and of what runs on hosts need
    """
    programs = {**PROGRAMS, **COMPILER} if everything else PROGRAMS
    found = {package for name, package in programs.items() if shutil.which(name) is None}
    if everything:
        found |= set(missing_packages(gpu=True))
        if not Path(sysconfig.get_path("include"), "Python.h").exists():
            found.add(f"python{sys.version_info[0]}.{sys.version_info[1]}-dev")
    return sorted(found)


def ensure(say: Callable[[str], None], *, everything: bool) -> None:
    """Install what is missing; raises LabError with the line to type where that cannot be done."""
    install_packages(missing(everything=everything), say, whose="the tests")


if __name__ == "__main__":
    try:
        ensure(print, everything="--all" in sys.argv)
    except LabError as error:
        sys.exit(str(error))
