"""What the probe tells of a build of torch from source."""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from probing import Tree, tree_fixture, write  # noqa: F401

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.pytorch_build import BuildState


def test_a_build_at_work_is_told_from_one_that_ended(tree: Tree) -> None:
    tree.venv()
    folder = tree.base / "build"
    assert tree.look(build=str(folder)).build.state is None
    write(folder / "building", f"{'ab' * 32} compile     \n")
    for running in (True, False):
        with (folder / "building").open() as held:
            if running:
                fcntl.flock(held, fcntl.LOCK_EX)
            build = tree.look(build=str(folder)).build
        assert build.state == BuildState(fingerprint="ab" * 32, phase="compile", running=running)
        assert (build.stamp, build.wheel) == (None, None)
    write(folder / "building", "{")
    assert tree.look(build=str(folder)).build.state == Unknown("it does not say which build it is")
    assert tree.look().build.state is None  # where no build is declared
