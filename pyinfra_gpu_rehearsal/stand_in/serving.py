"""A stand-in for PyTorch's source: a tiny tree that is built as PyTorch is, in seconds.

It has PyTorch's shape and nothing of PyTorch: a build backend, a submodule with a "libuv", some
hundred C files of one function each, and a wheel named torch.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu_rehearsal.base_image import archives_of, ensure_base_image
from pyinfra_gpu_rehearsal.commands import Say
from pyinfra_gpu_rehearsal.git_repository import publish
from pyinfra_gpu_rehearsal.lab import Lab
from pyinfra_gpu_rehearsal.wheelhouse import BUILD_REQUIREMENTS, ensure_wheels, lay_out_index

_HERE = Path(__file__).parent
_INDEX = "build-tools"
_UNITS, _UV_UNITS = 280, 20
_SUBMODULE = "third_party/tensorpipe"
_MODULES = f"""[submodule "{_SUBMODULE}"]
\tpath = {_SUBMODULE}
\turl = ../stand-in-tensorpipe.git
"""


@dataclass(frozen=True)
class Served:
    """What a host declares to build the stand-in.

    + git_url, commit: the tree
    + index_url: where CMake, ninja and the build backends are
    """

    git_url: str
    commit: str
    index_url: str


def serve_stand_in(
    lab: Lab, name: str = "stand-in", *, say: Say = print, broken: str = "", scikit: bool = False
) -> Served:
    """Serve a stand-in for PyTorch's source in a lab that is up.

    + name: of its repository
    + broken: a line of C that does not compile, put into one of its files
    + scikit: it is built by scikit-build-core, as PyTorch is from 2.14 on, and not by setuptools
    """
    image = ensure_base_image(archives_of(), say)
    lay_out_index(ensure_wheels(image.python, say, BUILD_REQUIREMENTS), lab.www / _INDEX)
    with tempfile.TemporaryDirectory(dir=lab.directory) as work:
        commit = _publish(lab.www / "git", Path(work), name, broken, scikit)
    return Served(f"{lab.url}/git/{name}.git", commit, f"{lab.url}/{_INDEX}/")


def _publish(git: Path, work: Path, name: str, broken: str, scikit: bool) -> str:
    """Make the stand-in's repositories in the folder GIT, and return the commit."""
    submodule, main = work / "tensorpipe", work / "stand-in"
    shutil.copytree(_HERE / "tensorpipe", submodule)
    _write_units(submodule / "uv", "uv_unit", _UV_UNITS)
    inner = publish(submodule, git / "stand-in-tensorpipe.git")
    shutil.copytree(_HERE / "main", main)
    if scikit:
        (main / "setup.py").unlink()
        shutil.copytree(_HERE / "scikit", main, dirs_exist_ok=True)
    (main / "third_party").mkdir()
    (main / ".gitmodules").write_text(_MODULES)
    _write_units(main / "csrc", "unit", _UNITS)
    if broken:
        with (main / f"csrc/unit_{_UNITS - 1:03d}.c").open("a") as last:
            last.write(f"{broken}\n")
    return publish(main, git / f"{name}.git", submodules={_SUBMODULE: inner})


def _write_units(folder: Path, name: str, count: int) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        text = f"int {name}_{number:03d}(int x) {{ return x + {number}; }}\n"
        (folder / f"{name}_{number:03d}.c").write_text(text)
