"""The training repository's checkout, as its owner sees it."""

from __future__ import annotations

import os

from .files import digest, document, masked, there
from .frame import Host, NotTold, rows, why

TYPE_CHECKING = False  # to load `typing` takes as long as a fifth of the look
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .frame import Facts

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


class GitError(NotTold):
    """Git said why it could not."""


def facts(host: Host, home: str) -> Facts:
    """The checkout, and what stands beside it."""
    asked, folder = host.asked, host.asked["training"]
    unit = f"{home}/.config/systemd/user/pyinfra-gpu-train@.service"
    found: dict[str, Callable[[], Any]] = {
        "environment.text": lambda: document(asked["env_file"]),
        "smoke.verdict": lambda: document(asked["verdict"]),
        "training.stamp_text": lambda: document(asked["training_stamp"]),
        "training.requirements_sha256": lambda: _requirements(asked["requirements"]),
        "launcher.own_masked": lambda: masked([unit], host.root) if folder else [],
    }
    keys = ("commit", "remote", "dirty", "dirty_count", "dirty_submodules", "submodules", "lfs")
    all_keys = " ".join(f"training.{each}" for each in (*keys, "damaged"))
    found[all_keys] = lambda: _checkout(host, folder)
    return found


def _requirements(path: str) -> str | None:
    if not path or not there(path):
        return None
    try:
        return digest(path, follow=True)
    except PermissionError:
        raise NotTold(f"no permission to read {path}") from None


def _checkout(host: Host, folder: str) -> tuple[Any, ...]:
    """Return commit, remote, changes, their number, changed submodules, submodules, LFS, damage."""
    nothing: tuple[Any, ...] = (None, None, [], 0, [], [], None, None)
    if not folder:
        return nothing
    try:
        os.lstat(f"{folder}/.git")
    except (FileNotFoundError, NotADirectoryError):
        return nothing
    except PermissionError:
        raise NotTold(f"no permission to look at {folder}") from None
    try:
        return (*Repository(host, folder).told(), None)
    except GitError as error:
        reason = f"git: {error}"
        damaged = reason if any(each in reason for each in _DAMAGED) else None
        return (*({"?": reason},) * 7, damaged)


class Repository:
    """A checkout, of which git is asked."""

    def __init__(self, host: Host, folder: str) -> None:
        self.host, self.folder = host, folder
        self.environment = {**_APART, "PATH": host.path}

    def git(self, *words: str) -> tuple[int, str]:
        """Ask git of this repository and of no other."""
        safe = f"safe.directory={self.folder}"
        before = ("git", "-c", safe, "-C", self.folder, *_SETTINGS)
        return self.host.run(*before, *words, seconds=10, environment=self.environment)

    def told(self) -> tuple[Any, ...]:
        """Return what `_checkout` does, but the damage."""
        words = ("status", "--porcelain=v2", "--branch", "--untracked-files=normal")
        status, said = self.git(*words)
        if status:
            raise GitError(why(status, said))
        commit, changes, changed = changes_in(said.split("\n"))
        changes += self._unwatched()
        status, said = self.git("config", "--get", "remote.origin.url")
        remote: Any = said if status == 0 else None if status == 1 else {"?": f"git: {said}"}
        first = changes[:_MOST]
        few = [each for each in changed if any(row[3:] == each for row in first)]
        return commit, remote, first, len(changes), few, self._submodules(), self._large_files()

    def _unwatched(self) -> list[str]:
        """Return the files that git was told not to look at (git-update-index(1)).

        What stands in them is not what is recorded, or nobody knows.
        """
        status, said = self.git("ls-files", "-v")
        lines = said.split("\n") if status == 0 else []
        return [f"?? {row[2:]}" for row in lines if row[:2] == "S " or row[:1].islower()]

    def _submodules(self) -> Any:
        """Return those that are not there, or not at the commit that is recorded for them."""
        if not os.path.exists(f"{self.folder}/.gitmodules"):
            return []
        status, said = self.git("submodule", "status", "--recursive")
        if status:
            return {"?": f"git: {why(status, said)}"}
        return [row for row in said.split("\n") if row[:1] in ("-", "+", "U") and row][:_MOST]

    def _large_files(self) -> Any:
        """Return how many files of git LFS are still what stands for them."""
        path = f"{self.folder}/.gitattributes"
        if not os.path.isfile(path) or not any("filter=lfs" in row for row in rows(path)):
            return None
        if self.host.which("git-lfs") is None:
            return "-"
        status, said = self.git("lfs", "ls-files")
        if status:
            return {"?": f"git: {why(status, said)}"}
        pointers = (row for row in said.split("\n") if " - " in row)
        return str(sum(row[:1] in "0123456789abcdef" for row in pointers))


def changes_in(lines: Iterable[str]) -> tuple[str | None, list[str], list[str]]:
    """Return commit, changes and changed submodules, of what `git status --porcelain=v2` says."""
    commit: str | None = None
    changes: list[str] = []
    changed: list[str] = []
    for row in lines:
        if row.startswith("# branch.oid "):
            word = row.split(" ", 2)[2]
            commit = None if word.startswith("(") else word
        elif row.startswith("1 .M SC.. "):
            continue  # a submodule at another commit and nothing else: `git submodule` tells of it
        elif row[:2] in ("1 ", "2 ", "u ", "? "):
            changes.append(change(row))
            submodule = row.split(" ")[2] if row[0] == "1" else ""
            if submodule[:1] == "S" and (submodule[2:3] == "M" or submodule[3:] == "U"):
                changed.append(change(row)[3:])
    return commit, changes, changed


def change(row: str) -> str:
    """Return a change of git's second porcelain format in the form of the first.

    The second format carries HEAD's commit in the same answer; the first is what people know.
    """
    kind, _, rest = row.partition(" ")
    if kind == "?":
        return f"?? {rest}"
    words = {"1": 7, "2": 8, "u": 9}[kind]
    parts = rest.split(" ", words)
    if len(parts) <= words:
        return row
    state, path = parts[0].replace(".", " "), parts[-1]
    if kind == "2":
        new, _, old = path.partition("\t")
        path = f"{old} -> {new}"
    return f"{state} {path}"
