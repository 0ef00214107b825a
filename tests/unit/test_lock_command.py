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

from pyinfra_gpu.spec.lock import parse
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
    said = " ".join(done.stdout.split())
    assert said == f"{FILE}: new, 2 packages, for w1.invalid, w2.invalid"
    text = (project.folder / FILE).read_text()
    lock = parse(text, FILE)
    tiny, torch = lock.packages
    assert torch.digests == (sha256(next(project.wheels.glob("torch*.whl"))),)
    assert (tiny.version, lock.installer.version) == ("1.0", UV_VERSION)
    assert project.url not in text

    wheel(project.wheels, "tiny", "1.1")
    project.serves()
    done = project.lock(*PLATFORM)
    assert "unchanged, 2 packages" in done.stdout  # what is locked stays
    assert (project.folder / FILE).read_text() == text

    done = project.lock(*PLATFORM, "--upgrade")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "  tiny 1.0 -> 1.1"
    assert "changed, 2 packages" in done.stdout
    assert [each.name for each in (project.folder / "locks").iterdir()] == [FILE.name]


def test_a_file_that_was_exchanged_under_its_version_catches_the_eye(project: Project) -> None:
    project.lock(*PLATFORM)
    wheel(project.wheels, "tiny", "1.0", text="somebody else's")
    project.serves()
    done = project.lock(*PLATFORM)
    assert done.stdout.splitlines()[-1] == "  tiny 1.0: ANOTHER DIGEST, same version"


def test_every_file_is_fetched_once_and_compared(project: Project) -> None:
    target = project.folder / "fetched"
    done = project.lock(*PLATFORM, "--download", str(target))
    assert done.returncode == 0, done.stderr
    assert "3 files, 0 MB, 3 of them fetched now" in " ".join(done.stdout.split())
    assert {each.name: sha256(each) for each in target.iterdir()} == {
        each.name: sha256(each) for each in project.wheels.glob("*.whl")
    }
    damaged = next(target.glob("tiny*"))
    damaged.write_bytes(b"")
    done = project.lock(*PLATFORM, "--download", str(target))
    assert "1 of them fetched now" in " ".join(done.stdout.split())
    assert sha256(damaged) == sha256(project.wheels / damaged.name)


def test_a_file_that_is_not_the_one_the_index_tells_of_is_not_kept(project: Project) -> None:
    target = project.folder / "fetched"
    page = project.folder / "simple" / "tiny" / "index.html"
    digest = sha256(next(project.wheels.glob("tiny*.whl")))
    page.write_text(page.read_text().replace(f"sha256={digest}", f"sha256={'0' * 64}"))
    done = project.lock(*PLATFORM, "--download", str(target))
    assert done.returncode == 1
    assert "what was sent has the digest" in done.stderr
    assert list(target.glob("*tiny*")) == []


def test_two_indexes_that_differ_are_refused_for_one_lock(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    wheel(other / "w", "torch", "2.13.0+cpu", text="another build")
    wheel(other / "w", "uv", UV_VERSION)
    with server(index(other / "w", other / "simple")) as (url, _):
        data = {"stack": "cpu-torch2.13", "pytorch_index_url": url}
        text = (project.folder / "inventory.py").read_text()
        (project.folder / "inventory.py").write_text(f"{text}cpu.append(('ws3', {data!r}))\n")
        done = project.lock(*PLATFORM)
    assert done.returncode == 1
    assert "serve different files for locks/" in done.stderr
    assert "torch 2.13.0+cpu: ANOTHER DIGEST" in done.stderr


def test_what_cannot_be_locked_is_one_sentence_with_what_to_do(project: Project) -> None:
    done = project.lock()
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first.startswith("! w1.invalid: its Python and machine cannot be told: could not be")
    assert "--platform 3.12-x86_64" in first
    assert second.startswith("! w2.invalid")

    done = project.lock(*PLATFORM, "--data", "pytorch_version=2.14.0")
    (line,) = done.stderr.splitlines()
    assert "nothing fits torch==2.14.0+cpu with Python 3.12 on x86_64" in line
    assert "declare a pytorch_version, pytorch_build or pytorch_python" in line

    done = project.lock(*PLATFORM, "--data", "pytorch_index_url=http://127.0.0.1:9/")
    (line,) = done.stderr.splitlines()
    assert "an index cannot be read" in line
    assert "pytorch_index_url" in line
    assert not (project.folder / "locks").exists()


def test_a_lock_that_is_none_is_told_of_and_left_alone(project: Project) -> None:
    damaged = project.folder / FILE
    damaged.parent.mkdir()
    for content in (b"\xff", b"torch"):
        damaged.write_bytes(content)
        done = project.lock(*PLATFORM)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"/{FILE}: " in done.stderr
        assert "take it back from version control" in done.stderr
        assert damaged.read_bytes() == content


def test_wrong_usage_is_said(project: Project) -> None:
    assert "such as 3.12-x86_64" in project.lock("--platform", "3.12").stderr
    done = project.lock(*PLATFORM, "--data", "pytorch_lock=ignore")
    assert (done.returncode, "nothing to lock" in done.stderr) == (1, True)
