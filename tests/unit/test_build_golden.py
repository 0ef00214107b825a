"""What `pyinfra --dry -v` says of a build of three releases: variables and commands, as files.

The input is data alone: version, commit, stack and GPU. None of these trees is here: that 2.12 is
built by setuptools and 2.14 by scikit-build-core is known from PyTorch's pull requests, so each
file has both, and the program on the host reads it in the tree. The commits are made up.

    PYINFRA_GPU_WRITE_GOLDEN=1 python -m pytest tests/unit/test_build_golden.py     writes them anew
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from built_host import record_of
from fake_host import FakeHost

from pyinfra_gpu.compatibility import resolve
from pyinfra_gpu.on_host.build.plan import Place, Plan, shown
from pyinfra_gpu.operations.pytorch_build import plan

GOLDEN = Path(__file__).parent / "fixtures/build"
DATA: dict[str, dict[str, object]] = {
    "v2.12": {"pytorch_version": "2.12.0", "pytorch_commit": "12" * 20, "gpu_model": "RTX 5090"},
    "v2.14": {
        "pytorch_version": "2.14.1", "pytorch_commit": "14" * 20, "gpu_model": "RTX 5090",
        "pytorch_archs": ["9.0", "12.0"], "pytorch_flags": {"USE_MKLDNN": 0},
        "pytorch_build_memory_gib": 32,
    },
    "v2.15": {
        "stack": "r595-cu132", "pytorch_version": "2.15.0", "pytorch_commit": "15" * 20,
        "gpu_model": "B200", "host_compiler": "gcc-14",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", DATA)
def test_the_commands_of_a_release_are_those_of_its_file(name: str) -> None:
    data = {"pytorch_source": "source", "pytorch_git_url": "https://github.com/pytorch/pytorch"}
    spec = resolve({**data, **DATA[name]}, "ws1")
    made = Plan(**plan(spec, record_of(FakeHost())))
    text = "\n".join(shown(made, Place(Path(spec.paths.build)))) + "\n"
    golden = GOLDEN / f"{name}.txt"
    if "PYINFRA_GPU_WRITE_GOLDEN" in os.environ:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()
