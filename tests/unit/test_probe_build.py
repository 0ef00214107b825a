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

STATE = (
    '{"fingerprint": "%s", "status": "running", "phase": "compile", "percent": 41, "steps_done": 1,'
    ' "total": 2, "left_s": null, "jobs": 2, "compiled": 1, "boot_id": "x", "started": "s",'
    ' "updated": "u", "more": 1}'
) % ("ab" * 32)


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
    assert build.running == build.state
    assert build.running.told() == "compile 1 of 2, 41 %"
    assert (build.stamp, build.wheel) == (None, None)
    write(folder / "pid", "4194999\n")  # more than the kernel ever gives
    assert tree.look(request).build.running is None
    write(folder / "state.json", "{")
    assert tree.look(request).build.state == Unknown("it is no JSON")


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


HEADER = """\
#ifndef CUDNN_VERSION_H_
#define CUDNN_VERSION_H_
#define CUDNN_MAJOR 9
#define CUDNN_MINOR 20
#define CUDNN_PATCHLEVEL 0
#define CUDNN_VERSION (CUDNN_MAJOR * 10000 + CUDNN_MINOR * 100 + CUDNN_PATCHLEVEL)
"""


def test_the_cudnn_a_build_takes_is_the_first_that_has_a_header(tree: Tree) -> None:
    tree.venv()
    folders = ("/opt/none/include", "/opt/my cudnn/include", "/usr/include")
    request = replace(tree.request(), cudnn=folders)
    assert tree.look(request).build.cudnn is None
    write(tree.root / "usr/include/cudnn_version.h", HEADER.replace("20", "1"))
    assert tree.look(request).build.cudnn == "9.1.0"
    write(tree.root / "opt/my cudnn/include/cudnn_version.h", HEADER)
    assert tree.look(request).build.cudnn == "9.20.0"
    assert tree.look().build.cudnn is None


def test_a_header_without_a_version_is_not_taken_for_one(tree: Tree) -> None:
    tree.venv()
    request = replace(tree.request(), cudnn=("/usr/include",))
    header = tree.root / "usr/include/cudnn_version.h"
    for text in ("", "#define CUDNN_MAJOR nine\n", "#include <cudnn_version_v9.h>\n"):
        write(header, text)
        assert isinstance(tree.look(request).build.cudnn, Unknown)
