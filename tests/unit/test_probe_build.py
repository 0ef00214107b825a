"""What the probe tells of a build of torch from source."""

from __future__ import annotations

import fcntl
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from probing import Tree, tree_fixture, write  # noqa: F401

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.pytorch_build import BuildState


def test_a_build_at_work_is_told_from_one_that_ended(tree: Tree) -> None:
    tree.venv()
    folder = tree.base / "build"
    request = replace(tree.request(), build=str(folder))
    assert tree.look(request).build.state is None
    write(folder / "building", f"{'ab' * 32} compile     \n")
    for running in (True, False):
        with (folder / "building").open() as held:
            if running:
                fcntl.flock(held, fcntl.LOCK_EX)
            build = tree.look(request).build
        assert build.state == BuildState(fingerprint="ab" * 32, phase="compile", running=running)
        assert (build.stamp, build.wheel) == (None, None)
    write(folder / "building", "{")
    assert tree.look(request).build.state == Unknown("it does not say which build it is")
    assert tree.look().build.state is None  # where no build is declared


MOUNTS = """\
/dev/sda1 / ext4 rw,relatime 0 0
tmpfs /t tmpfs rw,nosuid,noexec 0 0
/dev/sdb1 {base}/build ext4 rw,{options} 0 0
/dev/sdc1 {base}/buildings ext4 rw,noexec 0 0
"""


@pytest.mark.parametrize(("options", "told"), [("noexec", True), ("exec", False)])
def test_where_nothing_can_be_started_is_told(tree: Tree, options: str, told: bool) -> None:
    tree.venv()
    write(tree.root / "proc/self/mounts", MOUNTS.format(base=tree.base, options=options))
    folder = f"{tree.base}/build"
    storage = tree.look(replace(tree.request(), build=folder)).storage
    assert storage.noexec == (folder if told else None)
    # Of a build's folder that nobody asks for it does not matter.
    assert tree.look().storage.noexec is None
