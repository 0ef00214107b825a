"""A stand-in for PyTorch's source: a tiny tree that is built as PyTorch is, in seconds.

It has PyTorch's shape and nothing of PyTorch: a build backend, a submodule with a "libuv", CMake's
summary lines, some hundred C files of one function each, and a wheel named torch that says of
itself that it is a rehearsal's.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu_rehearsal.git_repository import publish

_HERE = Path(__file__).parent
UNITS = 280
_UV_UNITS = 20
SUBMODULE = "third_party/tensorpipe"
MODULES = f"""[submodule "{SUBMODULE}"]
\tpath = {SUBMODULE}
\turl = ../stand-in-tensorpipe.git
"""


@dataclass(frozen=True)
class StandIn:
    """A stand-in that is served.

    + commit: the one to declare; submodule: that of its submodule
    """

    commit: str
    submodule: str


def serve(
    git: Path,
    work: Path,
    *,
    name: str = "stand-in",
    units: int = UNITS,
    broken: str = "",
    scikit: bool = False,
) -> StandIn:
    """Make the stand-in's repositories in the folder GIT of a lab's file server.

    + work: an empty folder to lay the tree out in
    + name: of its repository
    + units: how many C files it compiles beside those of its submodule
    + scikit: it is built by scikit-build-core, as PyTorch is from 2.14 on, and not by setuptools
    + broken: a line of C that does not compile, put into one of them
    """
    submodule = work / "tensorpipe"
    shutil.copytree(_HERE / "tensorpipe", submodule)
    _write_units(submodule / "uv", "uv_unit", _UV_UNITS)
    inner = publish(submodule, git / "stand-in-tensorpipe.git")
    main = work / "stand-in"
    shutil.copytree(_HERE / "main", main)
    if scikit:
        (main / "setup.py").unlink()
        shutil.copytree(_HERE / "scikit", main, dirs_exist_ok=True)
    (main / "third_party").mkdir()
    (main / ".gitmodules").write_text(MODULES, encoding="utf-8")
    _write_units(main / "csrc", "unit", units)
    if broken:
        last = main / f"csrc/unit_{units - 1:03d}.c"
        last.write_text(f"{last.read_text()}{broken}\n", encoding="utf-8")
    commit = publish(main, git / f"{name}.git", submodules={SUBMODULE: inner})
    return StandIn(commit, inner)


def _write_units(folder: Path, name: str, count: int) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        text = f"int {name}_{number:03d}(int x) {{ return x + {number}; }}\n"
        (folder / f"{name}_{number:03d}.c").write_text(text, encoding="utf-8")
