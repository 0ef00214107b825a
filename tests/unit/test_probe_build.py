"""What the probe tells of a build of torch from source."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from probing import Tree, tree_fixture, write  # noqa: F401

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.pytorch_build import BuildState

STATE = '{"fingerprint": "%s", "boot": "x", "phase": "compile", "error": null, "more": 1}' % (
    "ab" * 32
)


def test_a_build_that_goes_on_is_told_and_one_whose_process_is_gone_is_not_at_work(
    tree: Tree,
) -> None:
    tree.venv()
    folder = tree.base / "build"
    request = replace(tree.request(), build=str(folder))
    write(folder / "state.json", STATE)
    write(folder / "pid", f"{os.getpid()}\n")
    build = tree.look(request).build
    assert isinstance(build.state, BuildState)
    assert (build.state.phase, build.pid) == ("compile", str(os.getpid()))
    assert (build.stamp, build.wheel) == (None, None)
    write(folder / "pid", "4194999\n")  # more than the kernel ever gives
    assert tree.look(request).build.pid is None
    write(folder / "state.json", "{")
    assert isinstance(tree.look(request).build.state, Unknown)


def test_where_no_build_is_declared_none_is_looked_for(tree: Tree) -> None:
    tree.venv()
    write(tree.base / "build/state.json", STATE)
    build = tree.look().build
    assert (build.stamp, build.wheel, build.state, build.pid) == (None, None, None, None)


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
