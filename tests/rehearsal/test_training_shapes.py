"""The training stage with a repository of another shape, whole, on a real host."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from running import Deployer, OnlyStage
from training import CHECKOUT, PREFIX
from wheels import index, wheel

from pyinfra_gpu_rehearsal import Lab, LabHost
from pyinfra_gpu_rehearsal.git_repository import publish

pytestmark = pytest.mark.rehearsal

HOST = "gpu1"
TORCH = "cd {}/venv/lib/python3*/site-packages && find torch torch-*.dist-info -type f -printf '{}'"
PINNED = "2.9.1"  # by nanochat; the hosts have another
NANOCHAT = """
[project]
name = "nanoshape"
version = "0.1.0"
requires-python = ">=3.10"
dependencies = ["tinydata>=1.0", "tinytokens==0.2.0", "torch==2.9.1"]

[dependency-groups]
dev = ["tinytest>=3"]

[project.optional-dependencies]
gpu = ["torch==2.9.1"]

[tool.uv.sources]
torch = [{ index = "pytorch-cu128", extra = "gpu" }]

[[tool.uv.index]]
name = "pytorch-cu128"
url = "https://download.pytorch.org/whl/cu128"
explicit = true
"""
"""In the words of its pyproject.toml; that index no host of a lab can reach."""
LOCKED = """
version = 1
revision = 3
requires-python = ">=3.10"

[[package]]
name = "torch"
version = "2.9.1"
source = { registry = "https://download.pytorch.org/whl/cpu" }
"""


def installed(host: LabHost) -> dict[str, str]:
    """Return what the environment has, by name."""
    program = (
        "import importlib.metadata as m, json;"
        "print(json.dumps({each.name: each.version for each in m.distributions()}))"
    )
    said = host.run(f"{PREFIX}/venv/bin/python -I -c '{program}'", root=False).stdout
    return dict(json.loads(said))


def test_one_that_pins_another_torch_gets_the_rest_and_torch_is_not_touched(
    lab: Lab, deployer: Deployer, proven: Callable[[str], LabHost], tmp_path: Path
) -> None:
    """As nanochat: its pin, its indexes of torch and its lock are for a machine without ours."""
    host, wheels, source = proven(HOST), tmp_path / "wheels", tmp_path / "nanoshape"
    wheel(wheels, "torch", PINNED)  # to be had, so that nothing but the override keeps it away
    wheel(wheels, "tinydata", "1.1", requires="numpy")
    wheel(wheels, "tinytokens", "0.2.0", requires="torch>=2.0")
    wheel(wheels, "tinytest", "3.0")
    index(wheels, lab.directory / "www/shapes")
    source.mkdir()
    (source / "pyproject.toml").write_text(NANOCHAT)
    (source / "uv.lock").write_text(LOCKED)
    commit = publish(source, lab.directory / "www/git/nanoshape.git")
    host.run(f"rm -rf {CHECKOUT}")
    repo = (f"training_repo={lab.url}/git/nanoshape.git", f"training_commit={commit}")
    extra = f"pytorch_extra_index_url={lab.url}/shapes/"
    data = (*deployer.data, *repo, "smoke=skip", extra)
    stage = OnlyStage(lab, deployer.folder, data=data, stage="base training")
    files, before = TORCH.format(PREFIX, r"%P %i %s %T@\n"), installed(host)
    torch = host.run(files).stdout

    changed = stage.converge(limit=HOST).changed(HOST)

    assert changed == [f"training: check out {commit[:12]}", "training: install the dependencies"]
    assert installed(host) == before | {"tinydata": "1.1", "tinytokens": "0.2.0"}
    assert before["torch"] not in ("", PINNED)
    assert host.run(files).stdout == torch
    assert len(torch.splitlines()) > 1000
    assert stage.converge(limit=HOST).changed(HOST) == []
    checked = stage.check(limit=HOST)
    assert (checked.code, [*checked.deviations(HOST)]) == (0, ["smoke.skipped"]), checked.answer
