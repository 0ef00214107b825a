"""`pyinfra-gpu lock` for a torch that is built, and for a nightly: what it names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from test_lock_command import PLATFORM, UV_VERSION, Project, project
from wheels import server, sha256, wheel

from pyinfra_gpu.locking.errors import LockingError
from pyinfra_gpu.locking.needs import Source
from pyinfra_gpu.locking.tree import TreeNeeds, read
from pyinfra_gpu.spec.lock import parse
from pyinfra_gpu.stacks import catalogue

__all__ = ["project"]

SETUP = """
def main():
    install_requires: list[str] = ["tiny>=1.0", 'other; python_version < "3"']
    setup(install_requires=install_requires)
"""
BACKEND = '[build-system]\nrequires = [\n    "backend>=70",  # why\n]\n[project]\nname = "torch"\n'
DATE = "2.16.0.dev20261120"


def repository(folder: Path, **files: str) -> tuple[str, str]:
    """Make a repository of these files; return its URL and its commit."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    who = ("-c", "user.name=x", "-c", "user.email=x@x")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "x")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    words = ["git", "rev-parse", "HEAD"]
    done = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True)
    return folder.as_uri(), done.stdout.strip()


def tree(folder: Path, setup: str = SETUP, project: str = BACKEND) -> tuple[str, str]:
    return repository(folder, **{"setup.py": setup, "pyproject.toml": project})


def declare(project: Project, **data: str) -> None:
    known = {"stack": "cpu-torch2.13", "pytorch_index_url": project.url, **data}
    (project.folder / "inventory.py").write_text(f"cpu = {[('w1.invalid', known)]!r}\n")


def test_a_lock_of_a_build_has_what_builds_torch_and_what_torch_needs(
    project: Project, tmp_path: Path
) -> None:
    url, commit = tree(tmp_path / "tree")
    declare(project, pytorch_source="source", pytorch_git_url=url, pytorch_commit=commit)
    for tool in catalogue().build_tools:
        name, _, version = tool.partition("==")
        wheel(project.wheels, name, version)
    wheel(project.wheels, "backend", "80")
    project.serves()
    done = project.lock(*PLATFORM)
    assert (done.returncode, done.stderr) == (0, "")
    path = Path(f"locks/torch-2.13.0+cpu-from-{commit[:12]}-py3.12-x86_64.txt")
    said = " ".join(done.stdout.split())
    assert said == f"{path}: new, 1 packages and 4 that build torch, for w1.invalid"
    lock = parse((project.folder / path).read_text(), path)
    assert [each.name for each in lock.packages] == ["tiny"]  # no torch: it is built
    assert [each.name for each in lock.tools] == ["backend", "build", "cmake", "ninja"]
    assert (lock.source, lock.installer.version) == (commit, UV_VERSION)

    wheel(project.wheels, "backend", "80", text="somebody else's")
    wheel(project.wheels, "tiny", "1.1")
    project.serves()
    done = project.lock(*PLATFORM, "--upgrade")
    assert done.stdout.splitlines()[-2:] == [
        "  tiny 1.0 -> 1.1",
        "  backend 80: ANOTHER DIGEST, same version (builds torch)",
    ]


def test_a_lock_of_a_nightly_names_the_files_that_this_machine_keeps(project: Project) -> None:
    tag = "cp312-cp312-manylinux_2_28_x86_64"
    needs = "pytorch-triton==3.6.0\nRequires-Dist: tiny\nRequires-Dist: gone; extra == 'x'"
    wheel(project.wheels, "torch", f"{DATE}+cpu", requires=needs, tag=tag)
    wheel(project.wheels, "pytorch_triton", "3.6.0", tag=tag)
    project.serves()
    declare(project, pytorch_source="nightly", pytorch_version=DATE)
    done = project.lock(*PLATFORM)
    assert (done.returncode, done.stderr) == (0, "")
    path = Path(f"locks/torch-{DATE}+cpu-py3.12-x86_64.txt")
    lock = parse((project.folder / path).read_text(), path)
    digests = {each.name: each.digests for each in lock.packages}
    kept = {each.name: each for each in project.folder.rglob("nightlies/*/*.whl")}
    assert digests["torch"] == (sha256(kept[f"torch-{DATE}+cpu-{tag}.whl"]),)
    assert digests["pytorch-triton"] == (sha256(kept[f"pytorch_triton-3.6.0-{tag}.whl"]),)
    assert sorted(digests) == ["pytorch-triton", "tiny", "torch"]

    for each in project.wheels.glob(f"*{tag}*"):
        each.unlink()  # the index forgets
    project.serves()
    target = project.folder / "fetched"
    done = project.lock(*PLATFORM, "--download", str(target))
    assert done.returncode == 0, done.stderr
    assert "unchanged, 3 packages" in done.stdout
    assert {each.name for each in target.iterdir()} >= kept.keys()


def test_an_archive_is_read_in_the_same_way_and_only_with_its_digest(tmp_path: Path) -> None:
    (tmp_path / "pytorch-v2").mkdir()
    (tmp_path / "pytorch-v2/setup.py").write_text(SETUP)
    (tmp_path / "pytorch-v2/requirements-build.txt").write_text("numpy>=2  # headers\n")
    archive = tmp_path / "x.tar.gz"
    subprocess.run(["tar", "-czf", archive, "-C", tmp_path, "pytorch-v2"], check=True)
    right = Source(archive=archive.as_uri(), identity=sha256(archive))
    needs = ("tiny>=1.0", 'other; python_version < "3"')
    assert read(right) == TreeNeeds(build=("numpy>=2",), run=needs)
    with pytest.raises(LockingError, match=r"and pytorch_source_sha256 is 0000.*: another file"):
        read(Source(archive=archive.as_uri(), identity="0" * 64))
    with pytest.raises(LockingError, match="cannot be read from here"):
        read(Source(archive=(tmp_path / "gone.tar").as_uri(), identity="0" * 64))


NEWER = '[project]\nname = "torch"\ndependencies = ["tiny"]\n'
UNREADABLE = {
    "another commit": (tree, "0" * 39 + "1", "has no commit 0{39}1: set pytorch_commit"),
    "a list that is computed": (
        lambda folder: tree(folder, "install_requires = [*more]\n"), "", "set pytorch_lock = 'ign",
    ),
    "no Python": (lambda folder: tree(folder, "print 'x'\n"), "", "no Python of today's"),
    "no TOML": (lambda folder: tree(folder, project="[build"), "", "no TOML"),
    "nothing of PyTorch": (
        lambda folder: repository(folder, README="x"), "", "is it PyTorch at all?",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_cannot_be_read_of_a_tree_is_one_sentence(what: str, tmp_path: Path) -> None:
    make, commit, sentence = UNREADABLE[what]
    url, made = make(tmp_path / "tree")
    with pytest.raises(LockingError, match=sentence):
        read(Source(git=url, identity=commit or made))


def test_a_repository_that_this_machine_does_not_reach_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LockingError, match=r"cannot be read from here: .*; see that this machine"):
        read(Source(git=(tmp_path / "gone").as_uri(), identity="ab" * 20))


def test_a_newer_tree_says_in_pyproject_what_it_needs(tmp_path: Path) -> None:
    url, commit = tree(tmp_path / "tree", project=NEWER)
    assert read(Source(git=url, identity=commit)).run == ("tiny",)


def test_a_server_that_hands_out_plain_files_is_read_as_well(tmp_path: Path) -> None:
    """It can neither filter nor hand out one commit; and is not asked object by object."""
    url, commit = tree(tmp_path / "tree")
    bare = tmp_path / "www/tree.git"
    subprocess.run(["git", "clone", "-q", "--bare", url, bare], check=True)
    subprocess.run(["git", "-C", bare, "update-server-info"], check=True)
    with server(tmp_path / "www") as (place, asked):
        read(Source(git=f"{place}tree.git", identity=commit))
        assert len([row for row in asked() if "info/refs" in row]) <= 2
