"""The code of a run: one commit with what was changed, laid out in a worktree of the run's own."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .host import TrainError, call

_PATIENCE_S = 280.0  # a worktree may be large; a start has 300


def head(checkout: Path) -> str | None:
    """Return the commit that is checked out; None where there is none."""
    if not (checkout / ".git").exists():
        return None
    try:
        return _git(checkout, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except TrainError:
        return None


def snapshot(checkout: Path) -> list[list[str]]:
    """Return [path, HEAD, commit] of a repository and of each of its submodules.

    The commit holds HEAD, local changes and new files; the index of a person is not touched.
    """
    return [_commit(checkout, path) for path in ["", *_submodules(checkout)]]


def lay_out(checkout: Path, folder: Path, run: str, code: list[list[str]]) -> None:
    """Have a folder hold the code, whole, whatever an earlier try left there."""
    for path, before, commit in code:
        repository, there = checkout / path, folder / path
        _git(repository, "update-ref", f"refs/train/{run}", commit)  # gc must not take it
        _git(repository, "worktree", "prune")
        if not (there / ".git").exists():
            words = ("--quiet", "--force", "--detach", "--no-checkout")
            _git(repository, "worktree", "add", *words, str(there), commit)
        _git(there, "reset", "--quiet", "--hard", commit)
        _git(there, "reset", "--quiet", "--soft", before)  # `git status` shows what was changed


def forget(checkout: Path, run: str, code: list[list[str]]) -> None:
    """Let git take a run's commits away when nothing else needs them."""
    for path, _, _ in code:
        if (checkout / path / ".git").exists():
            _git(checkout / path, "update-ref", "-d", f"refs/train/{run}")


def _commit(checkout: Path, path: str) -> list[str]:
    repository = checkout / path
    before = _git(repository, "rev-parse", "HEAD")
    with tempfile.TemporaryDirectory(prefix="train-") as folder:
        index = {"GIT_INDEX_FILE": f"{folder}/index"}
        _git(repository, "read-tree", "HEAD", **index)
        _git(repository, "add", "--all", **index)
        tree = _git(repository, "write-tree", **index)
    if tree == _git(repository, "rev-parse", "HEAD^{tree}"):
        return [path, before, before]
    who = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "train")
    who |= dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "train@localhost")
    words = ("commit-tree", tree, "-p", before, "-m", "as it was started")
    return [path, before, _git(repository, *words, **who)]


def _submodules(checkout: Path) -> list[str]:
    if not (checkout / ".gitmodules").exists():
        return []
    each = 'printf "%s\\n" "$displaypath"'
    return _git(checkout, "submodule", "--quiet", "foreach", "--recursive", each).splitlines()


def _git(folder: Path, *words: str, **variables: str) -> str:
    others = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    no_hooks = ("-c", "core.hooksPath=/dev/null")
    given = {**others, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **variables}
    said = call("git", *no_hooks, "-C", str(folder), *words, env=given, seconds=_PATIENCE_S)
    if said.returncode != 0:
        why = (said.stderr.strip().splitlines() or [f"it ended with {said.returncode}"])[-1]
        raise TrainError(f"git {words[0]} in {folder} failed: {why}")
    return said.stdout.strip()
