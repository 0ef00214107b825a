"""Configuring: CMake looks at the machine once, and writes what ninja will do."""

from __future__ import annotations

from . import tree
from .commands import Commands
from .errors import BuildError
from .files import remove, sync
from .place import Place
from .plan import Plan

LOG = "configure.txt"
"""What CMake printed, below the build's folder: the checks read it."""


def configure(plan: Plan, place: Place, run: Commands) -> None:
    """Have a build folder made by this very plan; an earlier one's is made anew.

    CMake keeps what it once found, so another flag or arch list begins with an empty folder.
    """
    remove(place.build)
    words = command(plan, place, tree.backend(place.source))
    lines: list[str] = []
    run.run(words, what="configuring", cwd=place.source, hear=lines.append)
    if not (place.build / "build.ninja").exists():
        raise BuildError(
            "configuring ended well and left no build/build.ninja: the tree was not built with"
            " ninja, which is what is followed here"
        )
    (place.root / LOG).write_text("\n".join(lines) + "\n", encoding="utf-8")
    sync(place.build)


def command(plan: Plan, place: Place, backend: str) -> list[str]:
    """Return the words that configure a tree of either backend."""
    python = str(place.environment / "bin/python")
    if backend == tree.SETUPTOOLS:
        return [python, "setup.py", "build", "--cmake-only"]
    # scikit-build-core has no way to configure alone; what it would call is CMake all the same.
    given = [f"-D{name}={value}" for name, value in plan.settings.items()]
    given.append(f"-DPython_EXECUTABLE={python}")
    words = ["cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
    return [*words, *given]
