"""A host that reaches no index: by a lock, from a folder, and never with another digest."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from running import INVENTORY, Deployer

from pyinfra_gpu.spec.lock import load
from pyinfra_gpu_rehearsal import LabHost
from tests.forked import PROJECT

pytestmark = pytest.mark.rehearsal

HOST = "gpu1"
WHEELS = "/srv/wheels"
TORCH_LOCK = "/opt/pyinfra-gpu/venv/.pyinfra-gpu-lock.txt"
DATA = (
    "pytorch_lock=required",
    f"pytorch_wheels={WHEELS}",
    "pytorch_index_url=http://192.0.2.1/",  # kept for documents: whoever asks it has failed
    "training_requirements=null",
    "smoke=skip",
)


class Elsewhere(Deployer):
    """Runs in a project of its own, whose locks nobody else has."""

    def lock(self, folder: Path, *data: str) -> Path:
        """Write the lock for the host, fetch its files, and return its path."""
        program = str(Path(sys.executable).parent / "pyinfra-gpu")
        words = [program, "lock", INVENTORY, "--limit", HOST, "--download", str(folder)]
        for each in ("pytorch_lock=required", *data):
            words += ["--data", each]
        done = self._done(words, self.environment(self.folder / "unused.json"))
        assert done.returncode == 0, done.stderr
        (path,) = (self.project / "locks").iterdir()
        return path


def copied(folder: Path) -> Path:
    """Return a folder that has got a copy of this project's policy."""
    for name in ("inventories", "group_data", "tasks", "examples"):
        shutil.copytree(PROJECT / name, folder / name)
    for name in ("deploy.py", "config.py"):
        shutil.copy(PROJECT / name, folder / name)
    return folder


@pytest.fixture
def project(deployer: Deployer, tmp_path: Path) -> Elsewhere:
    copied(tmp_path)
    data = (*deployer.data, *DATA)
    return Elsewhere(deployer.lab, deployer.folder, data=data, project=tmp_path)


def test_a_host_without_the_internet_is_installed_by_its_lock(
    project: Elsewhere, proven: Callable[[str], LabHost], tmp_path: Path
) -> None:
    host = proven(HOST)
    host.run("rm -rf /opt/pyinfra-gpu")
    refused = replace(project, arguments=("--dry",)).run(limit=HOST)
    assert refused.code == 1
    assert "no lock for Python 3.11 on x86_64" in refused.output

    lock = project.lock(tmp_path / "wheels")
    host.run(f"mkdir {WHEELS}")
    for each in (tmp_path / "wheels").iterdir():
        host.put(each, f"{WHEELS}/{each.name}")
    project.converge(limit=HOST)
    assert project.converge(limit=HOST).changed(HOST) == []
    assert host.run(f"cat {TORCH_LOCK}").stdout == load(lock).requirements

    right = lock.read_text()
    found = "sympy==1.14.0 \\\n    --hash=sha256:"
    assert f"{found}e" in right
    lock.write_text(right.replace(f"{found}e", f"{found}0"))
    assert "pytorch.lock-differs" in project.check(limit=HOST).deviations(HOST)
    refused = project.deploy(limit=HOST)
    (problem,) = refused.problems(HOST)
    assert refused.code == 1
    assert "is not the one the lock file names" in problem
    assert "`sympy==1.14.0`" in problem

    lock.write_text(right)
    assert project.converge(limit=HOST).changed(HOST) == []  # nothing was touched
    host.run(f"rm {TORCH_LOCK}")
    assert project.converge(limit=HOST).changed(HOST) == ["pytorch: install what the lock names"]
