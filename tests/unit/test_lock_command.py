"""`pyinfra-gpu lock` with a real uv and an index of small wheels: what it writes and says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from test_lock_installing import uv
from wheels import index, server, sha256, wheel

from pyinfra_gpu.spec.lock import load
from pyinfra_gpu.stacks import catalogue
from tests import forked

PROJECT = Path(__file__).resolve().parents[2]
FILE = Path("locks/torch-2.13.0+cpu-py3.12-x86_64.txt")
PLATFORM = ("--platform", "3.12-x86_64")
UV_VERSION = catalogue().stacks["cpu-torch2.13"].uv


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project with an inventory, and an index that serves what is in `wheels`."""

    folder: Path
    wheels: Path
    url: str

    def serves(self) -> None:
        """Bring the index up to date."""
        index(self.wheels, self.folder / "simple")

    def lock(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        beside = f"{Path(uv()).parent}{os.pathsep}{os.environ['PATH']}"
        known = {"PATH": beside, "PYTHONPATH": str(PROJECT), "HOME": str(self.folder / "home")}
        command = ["pyinfra-gpu", "lock", "inventory.py", *arguments]
        return forked.run(command, known, 300, folder=self.folder)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    (tmp_path / "home").mkdir()
    (tmp_path / "simple").mkdir()
    (tmp_path / "deploy.py").touch()
    wheels = tmp_path / "served"
    wheel(wheels, "torch", "2.13.0+cpu", requires="tiny>=1.0")
    wheel(wheels, "tiny", "1.0")
    wheel(wheels, "uv", UV_VERSION)
    with server(tmp_path / "simple") as (url, _):
        data = {"stack": "cpu-torch2.13", "pytorch_index_url": url}
        hosts = [("w1.invalid", data), ("w2.invalid", data)]
        (tmp_path / "inventory.py").write_text(f"cpu = {hosts!r}\n")
        made = Project(folder=tmp_path, wheels=wheels, url=url)
        made.serves()
        yield made


def test_a_lock_is_written_kept_and_brought_up_to_date(project: Project) -> None:
    done = project.lock(*PLATFORM)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{FILE}: 2 packages\n"
    path = project.folder / FILE
    text, lock = path.read_text(), load(path)
    assert sha256(next(project.wheels.glob("torch*.whl"))) in lock.lines["torch"]
    assert lock.versions["tiny"] == "1.0" and lock.installer.startswith(f"uv=={UV_VERSION} ")
    assert project.url not in text

    wheel(project.wheels, "tiny", "1.1")
    project.serves()
    assert project.lock(*PLATFORM).returncode == 0  # what is locked stays
    assert path.read_text() == text

    assert project.lock(*PLATFORM, "--upgrade").returncode == 0
    assert load(path).versions["tiny"] == "1.1"
    assert [each.name for each in (project.folder / "locks").iterdir()] == [FILE.name]


def test_every_file_is_fetched_and_compared(project: Project) -> None:
    target = project.folder / "fetched"
    done = project.lock(*PLATFORM, "--download", str(target))
    assert done.returncode == 0, done.stderr
    assert {each.name: sha256(each) for each in target.iterdir()} == {
        each.name: sha256(each) for each in project.wheels.glob("*.whl")
    }
    next(target.glob("tiny*")).unlink()
    wheel(project.wheels, "tiny", "1.0", text="somebody else's")
    project.serves()
    done = project.lock(*PLATFORM, "--download", str(target))
    assert done.returncode == 1
    assert "cannot be fetched into" in done.stderr
    assert list(target.glob("*tiny*")) == []


def test_what_cannot_be_locked_is_one_sentence_with_what_to_do(project: Project) -> None:
    done = project.lock()
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first.startswith("! w1.invalid: its Python and machine are not known: could not be")
    assert "--platform 3.12-x86_64" in first
    assert second.startswith("! w2.invalid")

    done = project.lock(*PLATFORM, "--data", "pytorch_version=2.14.0")
    (line,) = done.stderr.splitlines()
    assert "torch==2.14.0+cpu, uv==" in line
    assert "cannot be locked for Python 3.12 on x86_64" in line

    done = project.lock(*PLATFORM, "--data", "pytorch_index_url=http://127.0.0.1:9/")
    (line,) = done.stderr.splitlines()
    assert "http://127.0.0.1:9/" in line
    assert not (project.folder / FILE).exists()


def test_wrong_usage_is_said(project: Project) -> None:
    assert "such as 3.12-x86_64" in project.lock("--platform", "3.12").stderr
    done = project.lock(*PLATFORM, "--data", "pytorch_lock=ignore")
    assert (done.returncode, "nothing to lock" in done.stderr) == (1, True)
