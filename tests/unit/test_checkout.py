"""A repository is checked out with what belongs to it, by real git, and judged by the probe."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_host import DATA, FakeHost

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.parse import parse
from pyinfra_gpu.facts.probe import asked_of
from pyinfra_gpu.facts.record import Record, TrainingRecord
from pyinfra_gpu.on_host import probe_program, program
from pyinfra_gpu.spec import HostSpec, Paths
from pyinfra_gpu.stages.training import findings as training

MODEL = "weights.bin"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_settings(tmp_path / "home", monkeypatch)


def without_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process that of a user without settings of git's, but for a name."""
    for name in [each for each in os.environ if each.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\nname = u\nemail = u@example.org\n")


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "protocol.file.allow=always", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def committed(folder: Path, **files: str) -> str:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "x")
    return git(folder, "rev-parse", "HEAD")


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    committed(folder, main="1")
    return folder


class Place:
    """A prefix, and what is fetched into it: a repository with a submodule that has one too."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.inner, self.library = repository(base / "inner"), repository(base / "library")
        git(self.library, "submodule", "--quiet", "add", str(self.inner), "deep")
        committed(self.library)
        self.repo = repository(base / "repo")
        git(self.repo, "submodule", "--quiet", "add", str(self.library), "lib with blanks")
        self.first = committed(self.repo)
        committed(self.library, main="2")
        git(self.repo / "lib with blanks", "pull", "--quiet", "origin", "main")
        self.second = committed(self.repo)
        self.paths = Paths(prefix=str(base / "prefix"), name="training")
        self.folder = Path(self.paths.training)
        self.folder.parent.mkdir(parents=True)

    def check_out(
        self,
        commit: str,
        *,
        stash: bool = False,
        submodules: bool = True,
        lfs: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        flags = ("1" if each else "" for each in (stash, submodules, lfs))
        command = program("training/checkout.sh", str(self.folder), str(self.repo), commit, *flags)
        return subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60
        )

    def looked_at(self) -> TrainingRecord:
        said = subprocess.run(
            ["/usr/bin/python3", "-I", "-S", "-"],
            input=probe_program("look", asked_of(self.paths, owner="-")),
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return parse(said.stdout.splitlines()).training


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Path]:
    """A place, and a copy of all that is in it."""
    base = tmp_path_factory.mktemp("checkout")
    with pytest.MonkeyPatch.context() as patch:
        without_settings(base.with_name("home-of-checkout"), patch)
        place = Place(base)
    kept = base.with_name("checkout-as-made")
    shutil.copytree(base, kept, symlinks=True)
    return place, kept


@pytest.fixture
def place(made: tuple[Place, Path]) -> Place:
    """A place as it was made: to copy it takes a tenth of what git takes to make another.

    It stays where it is, since repositories name one another by their paths.
    """
    place, kept = made
    shutil.rmtree(place.base)
    shutil.copytree(kept, place.base, symlinks=True)
    return copy(place)


def state(place: Place) -> tuple[object, ...]:
    seen = place.looked_at()
    return seen.commit, seen.submodules, seen.dirty_count


def test_submodules_are_checked_out_with_it_and_followed_to_another_commit(place: Place) -> None:
    assert place.check_out(place.first, submodules=False).returncode == 0
    (row,) = place.looked_at().submodules  # type: ignore[misc]
    assert (row[0], row.rpartition(" lib")[1:]) == ("-", (" lib", " with blanks"))
    done = place.check_out(place.first)
    assert (done.returncode, done.stderr) == (0, "")
    library = place.folder / "lib with blanks"
    assert (library / "main.py").read_text() == "1"
    assert (library / "deep/main.py").exists()
    assert state(place) == (place.first, (), 0)

    assert place.check_out(place.second).returncode == 0
    assert (library / "main.py").read_text() == "2"
    assert state(place) == (place.second, (), 0)


def kept(folder: Path, commit: str) -> str:
    """Return what is said of a commit of a person's that hung on nothing but HEAD."""
    where, branch = f"{folder} was at {commit[:12]}", f"pyinfra-gpu/kept-{commit[:12]}"
    assert git(folder, "rev-parse", branch) == commit
    return f"pyinfra-gpu-note: {where}, which no branch or tag had: branch {branch} keeps it\n"


def test_a_persons_commit_is_kept_and_told_also_where_the_rest_fails(place: Place) -> None:
    assert place.check_out(place.second).stdout == ""
    library = place.folder / "lib with blanks"
    mine = committed(library, mine="1")
    seen = place.looked_at()
    assert [row[0] for row in seen.submodules] == ["+"]  # type: ignore[union-attr]
    assert seen.dirty_count == 0
    done = place.check_out(place.second)
    assert (done.returncode, done.stdout) == (0, kept(library, mine))
    assert place.looked_at().submodules == ()
    mine = committed(place.folder, mine="1")
    failed = place.check_out("f" * 40)
    assert failed.returncode != 0
    assert failed.stdout == kept(place.folder, mine)
    assert place.check_out(place.second).stdout == ""  # a branch has it by now


def test_changes_in_one_are_a_persons_and_set_aside_where_that_is_declared(place: Place) -> None:
    assert place.check_out(place.first).returncode == 0
    file = place.folder / "lib with blanks/main.py"
    file.write_text("mine")
    assert place.looked_at().dirty == (" M lib with blanks",)
    refused = place.check_out(place.second)
    assert refused.returncode != 0  # git will not write over it
    assert file.read_text() == "mine"
    for submodules in (True, False):  # which may be the user's business, and are stashed even so
        file.write_text("mine")
        done = place.check_out(place.second, stash=True, submodules=submodules)
        assert done.returncode == 0, done.stderr
        assert place.looked_at().dirty_count == 0
    assert git(file.parent, "stash", "list").count("set aside by pyinfra-gpu") == 2


def test_large_files_are_fetched_where_the_program_is_there(place: Place) -> None:
    git(place.repo, "lfs", "install", "--local")
    git(place.repo, "lfs", "track", "*.bin")
    (place.repo / MODEL).write_text("heavy" * 1000)
    commit = committed(place.repo)
    assert place.check_out(place.first).returncode == 0
    assert place.looked_at().lfs is None
    assert place.check_out(commit, lfs=False).returncode == 0
    assert place.looked_at().lfs == "1"
    assert (place.folder / MODEL).read_text().startswith("version https://git-lfs")
    assert place.check_out(commit).returncode == 0
    assert (place.folder / MODEL).read_text() == "heavy" * 1000
    seen = place.looked_at()
    assert (seen.lfs, seen.dirty_count) == ("0", 0)


def test_where_the_program_is_not_there_the_run_that_checks_out_says_so(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it, nobody could: there was another commit, or none."""
    (place.repo / ".gitattributes").write_text("*.bin filter=lfs -text\n")
    commit = committed(place.repo)
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in map(Path, os.environ["PATH"].split(os.pathsep)):
        for each in folder.iterdir() if folder.is_dir() else ():
            if each.name != "git-lfs" and not (programs / each.name).is_symlink():
                (programs / each.name).symlink_to(each)
    monkeypatch.setenv("PATH", str(programs))
    done = place.check_out(commit)
    assert done.returncode == 0, done.stderr
    finding, *_ = training.judge(*asking(place, commit))
    assert done.stdout == f"pyinfra-gpu-note: {finding.found}: {finding.action}\n"
    assert place.check_out(commit, lfs=False).stdout == ""


def asking(place: Place, commit: str) -> tuple[HostSpec, Record]:
    """A host of which this commit is asked, and what is known of it: what is at this place."""
    host = FakeHost(data={**DATA, "training_commit": commit})
    record = host.record()
    return host.spec(), replace(record, training=place.looked_at())


DAMAGES: dict[str, Callable[[Path], object]] = {
    "HEAD is empty": lambda git: (git / "HEAD").write_bytes(b""),
    "the objects are empty": lambda git: [
        (each.unlink(), each.write_bytes(b""))  # a local clone shares them
        for each in (git / "objects").rglob("*")
        if each.is_file()
    ],
}
"""What a power cut leaves of a repository, by what is done to its folder .git."""


@pytest.mark.parametrize("what", DAMAGES)
def test_a_repository_that_git_cannot_read_is_kept_and_cloned_anew(place: Place, what: str) -> None:
    assert place.check_out(place.first).returncode == 0
    (place.folder / "mine.py").write_text("mine")
    DAMAGES[what](place.folder / ".git")
    seen = place.looked_at()
    assert str(seen.damaged).startswith("git: "), seen
    assert isinstance(seen.commit, Unknown)
    there, place.repo = place.repo, place.repo / "not there"
    assert place.check_out(place.first).returncode != 0
    assert (place.folder / "mine.py").exists()  # it stays while no other can be had
    place.repo = there
    done = place.check_out(place.first)
    assert done.returncode == 0, done.stderr
    seen = place.looked_at()
    assert (seen.damaged, seen.commit, seen.dirty_count) == (None, place.first, 0)
    (aside,) = place.folder.parent.glob(f"{place.folder.name}.damaged-*")
    assert (aside / "mine.py").read_text() == "mine"
    assert str(aside) in done.stdout


@pytest.mark.parametrize("repository", [True, False])
def test_what_is_somebodys_is_not_taken_for_a_clone_of_ours(place: Place, repository: bool) -> None:
    """A folder with files, and a repository without a commit; one above it is none of ours."""
    git(place.folder.parent, "init", "--quiet")
    committed(place.folder.parent, other="1")
    place.folder.mkdir()
    if repository:
        git(place.folder, "init", "--quiet")
    (place.folder / "notes").write_text("mine")
    done = place.check_out(place.first)
    assert done.returncode != 0
    assert "Directory not empty" in done.stderr
    assert (place.folder / "notes").read_text() == "mine"


ROW = "0" * 40
SUBMODULES, LFS = "training.submodules", "training.lfs"
INCOMPLETE: list[tuple[dict[str, Any], str]] = [
    ({}, ""),
    (
        {SUBMODULES: [f"-{ROW} a", f"+{ROW} b (v1-2-gabc)"]},
        "repair submodules: no a, another commit of b",
    ),
    ({SUBMODULES: [f"-{ROW} a"], "training_submodules": False}, ""),
    ({LFS: "3"}, "repair 3 files of git LFS not fetched"),
    ({LFS: "0"}, ""),
    ({LFS: "3", "training_lfs": False}, ""),
    ({LFS: "-"}, "report files in git LFS, and no git-lfs on the host"),
    # of a checkout at another commit nothing more is said
    ({SUBMODULES: [f"-{ROW} a"], "training_commit": "f" * 40}, "repair at 0123456789ab"),
]


@pytest.mark.parametrize(("changes", "found"), INCOMPLETE)
def test_what_is_not_complete_is_found(changes: dict[str, Any], found: str) -> None:
    data = {key: value for key, value in changes.items() if "." not in key}
    lists = {key: value for key, value in changes.items() if key == SUBMODULES}
    host = FakeHost(data={**DATA, **data}, reported={**lists, LFS: changes.get(LFS)})
    judged = training.judge(host.spec(), host.record())
    assert [f"{each.effect} {each.found}" for each in judged] == [found] * bool(found)


def test_a_commit_that_cannot_be_fetched_is_known_before_anything_is_written(
    tmp_path: Path,
) -> None:
    repo, folder = repository(tmp_path / "repo"), tmp_path / "none"
    first = git(repo, "rev-parse", "HEAD")
    committed(repo, main="2")
    nobodys = "0" * 40

    def said(folder: Path, repo: Path, commit: str) -> str:
        command = program("training/reachable.sh", str(folder), f"file://{repo}", commit)
        return subprocess.run(["sh", "-c", command], capture_output=True, text=True).stderr

    assert said(folder, repo, first) == ""
    assert said(folder, repo, nobodys) == f"it has no commit {nobodys}\n"
    assert "does not appear to be a git repository" in said(folder, tmp_path / "gone", first)
    assert said(repo, tmp_path / "gone", first) == ""  # it is there
    assert not folder.exists()


@pytest.mark.parametrize("flag", ["assume-unchanged", "skip-worktree"])
def test_changes_that_git_was_told_not_to_look_at_are_changes(place: Place, flag: str) -> None:
    assert place.check_out(place.first).returncode == 0
    git(place.folder, "update-index", f"--{flag}", ".gitmodules")
    (place.folder / ".gitmodules").write_text("mine")
    seen = place.looked_at()
    assert (seen.dirty, seen.dirty_count) == (("?? .gitmodules",), 1)
    done = place.check_out(place.second, stash=True, submodules=False)
    assert done.returncode == 0, done.stderr
    assert git(place.folder, "show", "stash@{0}:.gitmodules") == "mine"
