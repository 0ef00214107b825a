"""What the probe tells of the training repository, however it was treated."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from probing import NOBODY, ROOT, Tree, checkout, git, tree_fixture, write  # noqa: F401


def test_changes_are_told_as_git_status_tells_them(tree: Tree) -> None:
    folder = checkout(tree)
    training = tree.look().training
    assert training.commit == git(folder, "rev-parse", "HEAD")
    assert (training.dirty, training.dirty_count, training.stamp_text) == ((), 0, None)
    assert training.requirements_sha256 == hashlib.sha256(b"numpy\n").hexdigest()
    write(folder / "old name.py", "a\nb\nc\nd\ne\nf\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "second")
    write(folder / "train.py", "print('changed')\n")
    (folder / "requirements.txt").unlink()
    git(folder, "mv", "old name.py", "new name.py")
    write(folder / "added.py", "1\n")
    git(folder, "add", "added.py")
    write(folder / "added.py", "2\n")
    write(folder / "logs/run.log", "")
    write(folder / "new\nline", "")
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9")).write_text("")
    reported = (
        "AM added.py",
        "R  old name.py -> new name.py",
        " D requirements.txt",
        " M train.py",
        r'?? "caf\351"',
        "?? logs/",
        r'?? "new\nline"',
    )
    training = tree.look().training
    assert (training.dirty, training.dirty_count) == (reported, 7)
    for number in range(45):
        write(folder / f"{number:02}", "")
    training = tree.look().training
    assert training.dirty_count == 52
    assert training.dirty == (*reported[:4], *(f"?? {number:02}" for number in range(16)))


def test_an_unfinished_merge_is_a_change(tree: Tree) -> None:
    folder = checkout(tree)
    git(folder, "checkout", "-q", "-b", "other")
    write(folder / "train.py", "theirs\n")
    git(folder, "commit", "-q", "-a", "-m", "theirs")
    git(folder, "checkout", "-q", "main")
    write(folder / "train.py", "ours\n")
    git(folder, "commit", "-q", "-a", "-m", "ours")
    with pytest.raises(Exception, match="merge"):
        git(folder, "merge", "-q", "other")
    assert tree.look().training.dirty == ("UU train.py",)


def test_a_repository_around_the_prefix_is_not_taken_for_ours(tree: Tree) -> None:
    git(tree.base, "init", "-q")
    Path(tree.paths.training).mkdir(parents=True)
    assert tree.look().training.commit is None


def test_without_a_training_repository_nothing_is_looked_at(tree: Tree) -> None:
    checkout(tree)
    training = tree.look(training="", requirements="").training
    assert training.commit is None
    assert training.requirements_sha256 is None


def test_the_surroundings_of_the_run_do_not_lead_git_astray(tree: Tree) -> None:
    """A run that is started out of a git hook carries that repository's variables."""
    folder = checkout(tree)
    tree.environment |= {
        "GIT_DIR": "/nowhere",
        "GIT_WORK_TREE": "/nowhere",
        "GIT_INDEX_FILE": "/nowhere",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.bare",
        "GIT_CONFIG_VALUE_0": "true",
        "GIT_TRACE": "1",
        "LANG": "de_DE.UTF-8",
    }
    training = tree.look().training
    assert training.commit == git(folder, "rev-parse", "HEAD")
    assert training.dirty == ()
