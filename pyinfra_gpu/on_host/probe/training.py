"""The training repository's checkout, and documents below the prefix, as their owner sees them."""

from __future__ import annotations

import os

from .files import digest, document, is_file
from .frame import GONE, Any, Callable, Facts, Host, NotReported, rows, why

_MOST = 20
# Nothing but the repository's own settings counts, nothing of it is executed, nothing is fetched.
_SETTINGS = (
    *("--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false"),
    *("-c", "protocol.allow=never", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=true"),
    *("--git-dir=.git", "--work-tree=."),
)
_APART = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "HOME": "/nonexistent",
    "XDG_CONFIG_HOME": "/nonexistent",
    "LC_ALL": "C",
}
# What a power cut or a full disk leaves of a repository, in git's words.
_DAMAGED = (
    *("not a git repository", "index file", "bad signature", "packfile", "object file"),
    *("loose object", "bad object", "unable to read", "corrupt", "bad tree"),
)
_FIELDS = {"1 ": 7, "2 ": 8, "u ": 9}  # before the path, by what begins the row


def _git(host: Host, *words: str) -> str:
    """Ask git of this repository and of no other."""
    folder = host.asked["training"]
    before = ("git", "-c", f"safe.directory={folder}", "-C", folder, *_SETTINGS)
    environment = {**_APART, "PATH": host.path}
    status, said = host.run(*before, *words, seconds=10, environment=environment)
    if status:
        raise NotReported(f"git: {why(status, said)}")
    return said


def _checkout(host: Host) -> tuple[Any, ...]:
    """Return commit, changes, their number and damage."""
    nothing: tuple[Any, ...] = (None, [], 0, None)
    if not host.asked["training"]:
        return nothing
    try:
        os.lstat(f"{host.asked['training']}/.git")
    except GONE:
        return nothing
    except PermissionError:
        raise NotReported(f"no permission to look at {host.asked['training']}") from None
    try:
        said = _git(host, "status", "--porcelain=v2", "--branch", "--untracked-files=normal")
    except NotReported as error:
        reason = str(error)
        damage = reason if any(each in reason for each in _DAMAGED) else None
        return (*({"?": reason},) * 3, damage)
    commit, changes = _changes_in(said)
    changes += _unwatched(host)
    return commit, changes[:_MOST], len(changes), None


def _unwatched(host: Host) -> list[str]:
    """Return the files that git was told not to look at (git-update-index(1)).

    What stands in them is not what is recorded, or nobody knows.
    """
    lines = _git(host, "ls-files", "-v").split("\n")
    return [f"?? {row[2:]}" for row in lines if row[:2] == "S " or row[:1].islower()]


def _submodules(host: Host) -> list[str]:
    """Return those that are not there, or not at the commit that is recorded for them."""
    folder = host.asked["training"]
    if not folder or not os.path.exists(f"{folder}/.gitmodules"):
        return []
    said = _git(host, "submodule", "status", "--recursive")
    return [row for row in said.split("\n") if row[:1] in ("-", "+", "U") and row][:_MOST]


def _large_files(host: Host) -> str | None:
    """Return how many files of git LFS are still what stands for them."""
    folder = host.asked["training"]
    path = f"{folder}/.gitattributes"
    if not folder or not os.path.isfile(path) or not any("filter=lfs" in e for e in rows(path)):
        return None
    if host.which("git-lfs") is None:
        return "-"
    pointers = (row for row in _git(host, "lfs", "ls-files").split("\n") if " - " in row)
    return str(sum(row[:1] in "0123456789abcdef" for row in pointers))


def _changes_in(said: str) -> tuple[str | None, list[str]]:
    """Return commit and changes, of what `git status --porcelain=v2` says.

    That format carries HEAD's commit in the same answer; changes are told in the form of the first
    one, which is what people know.
    """
    commit: str | None = None
    changes: list[str] = []
    for row in said.split("\n"):
        if row.startswith("# branch.oid ") and "(" not in row:
            commit = row.split(" ", 2)[2]
        elif row.startswith("? "):
            changes.append(f"?? {row[2:]}")
        # A submodule at another commit and nothing else: `git submodule` tells of it.
        elif row[:2] in _FIELDS and not row.startswith("1 .M SC.. "):
            path, _, old = row.split(" ", _FIELDS[row[:2]] + 1)[-1].partition("\t")
            changes.append(f"{row[2:4].replace('.', ' ')} {f'{old} -> {path}' if old else path}")
    return commit, changes


def _of(name: str) -> Callable[[Host], str | None]:
    return lambda host: document(host.asked[name])


def _digest(host: Host, name: str) -> str | None:
    path = host.asked[name]
    return digest(path) if is_file(path) else None


FACTS: Facts = {
    "smoke.verdict": _of("verdict"),
    "smoke.verdict_sha256": lambda host: _digest(host, "verdict"),
    "training.stamp_text": _of("training_stamp"),
    "training.requirements_sha256": lambda host: _digest(host, "requirements"),
    "training.commit training.dirty training.dirty_count training.damaged": _checkout,
    "training.submodules": _submodules,
    "training.lfs": _large_files,
}
