"""What the probe tells of the training repository, however it was treated."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from probing import NOBODY, ROOT, Tree, checkout, git, tree_fixture, write  # noqa: F401

from pyinfra_gpu.facts.fields import Unknown


def test_a_clean_checkout_tells_its_commit(tree: Tree) -> None:
    folder = checkout(tree)
    training = tree.look().training
    assert training.commit == git(folder, "rev-parse", "HEAD")
    assert (training.dirty, training.dirty_count) == ((), 0)
    assert training.requirements_sha256 == hashlib.sha256(b"numpy\n").hexdigest()
    assert training.stamp_text is None


def test_changes_are_told_as_git_status_tells_them(tree: Tree) -> None:
    folder = checkout(tree)
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
    training = tree.look().training
    assert training.dirty == (
        "AM added.py",
        "R  old name.py -> new name.py",
        " D requirements.txt",
        " M train.py",
        "?? logs/",
    )
    assert training.dirty_count == 5


def test_names_with_newlines_and_odd_bytes_stay_one_change_each(tree: Tree) -> None:
    folder = checkout(tree)
    write(folder / "new\nline", "")
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9")).write_text("")
    write(folder / "tab\there", "")
    write(folder / ' blank "quoted" ', "")
    training = tree.look().training
    assert training.dirty_count == 4
    assert sorted(training.dirty) == [  # type: ignore[type-var]
        r'?? " blank \"quoted\" "',
        r'?? "caf\351"',
        r'?? "new\nline"',
        r'?? "tab\there"',
    ]


def test_twenty_changes_are_named_and_all_are_counted(tree: Tree) -> None:
    folder = checkout(tree)
    for number in range(45):
        write(folder / f"{number:02}", "")
    training = tree.look().training
    assert training.dirty_count == 45
    assert training.dirty == tuple(f"?? {number:02}" for number in range(20))


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


def test_a_broken_repository_is_unknown_in_gits_own_words(tree: Tree) -> None:
    folder = checkout(tree)
    (folder / ".git/HEAD").write_bytes(b"\0" * 41)
    commit = tree.look().training.commit
    assert isinstance(commit, Unknown)
    assert commit.reason.startswith("git: fatal: ")


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
