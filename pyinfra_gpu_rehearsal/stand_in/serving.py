"""The stand-in as a lab serves it, with what builds it."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu_rehearsal.aptconfig import read_machine
from pyinfra_gpu_rehearsal.base_image import Say, ensure_base_image
from pyinfra_gpu_rehearsal.lab import Lab
from pyinfra_gpu_rehearsal.stand_in import serve
from pyinfra_gpu_rehearsal.wheelhouse import BUILD_REQUIREMENTS, ensure_index

_INDEX = "build-tools"


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
    + scikit: it is built by scikit-build-core, as PyTorch is from 2.14 on
    """
    www = lab.directory / "www"
    image = ensure_base_image(read_machine(), say)
    tools = ensure_index(image.python, say, BUILD_REQUIREMENTS)
    shutil.rmtree(www / _INDEX, ignore_errors=True)
    shutil.copytree(tools, www / _INDEX, symlinks=True)
    with tempfile.TemporaryDirectory(dir=lab.directory) as work:
        made = serve(www / "git", Path(work), name=name, broken=broken, scikit=scikit)
    return Served(f"{lab.url}/git/{name}.git", made.commit, f"{lab.url}/{_INDEX}/")
