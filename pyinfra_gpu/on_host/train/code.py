"""The code of a run: the checkout's commit and what was changed in it, in a worktree of its own."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from .errors import TrainError
from .site import AGAIN

LARGEST_DIFF = 64 << 20  # bytes
WORKTREE = "code"
"""Of a run, in its folder: there its program runs, so there a relative path begins."""

_ALONE = ("--ignore-submodules=all",)  # each has a difference of its own
_EACH = 'printf "%s %s\\n" "$(git rev-parse HEAD)" "$displaypath"'
_WORKS_S = 280.0


def _git(
    folder: Path, *words: str, index: str | None = None, text: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
        **({"GIT_INDEX_FILE": index} if index else {}),
    }
    try:
        return subprocess.run(
            ["git", "-c", "core.hooksPath=/dev/null", "-C", str(folder), *words],
            env=environment,
            capture_output=True,
            input=text if text is not None else b"",
            timeout=_WORKS_S,
            check=False,
        )
    except FileNotFoundError:
        raise TrainError(f"git is not on this host: {AGAIN}") from None
    except subprocess.TimeoutExpired:
        raise TrainError(
            f"git {words[0]} in {folder} did not end within {_WORKS_S:.0f} s"
        ) from None


def commit(checkout: Path) -> str | None:
    """Return the commit that is checked out; None where there is none."""
    if not (checkout / ".git").exists():
        return None
    said = _git(checkout, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    return said.stdout.decode().strip() if said.returncode == 0 else None


def holds(checkout: Path, path: str) -> bool:
    """Tell whether the checkout has a file, committed or not."""
    return (checkout / path).is_file()


def difference(checkout: Path) -> bytes:
    """Return all that differs from the commit, new files included but for ignored ones.

    It goes through an index of our own, so the person's is not touched. Raises TrainError.
    """
    with tempfile.TemporaryDirectory(prefix="train-") as folder:
        index = str(Path(folder) / "index")
        for words in (("read-tree", "HEAD"), ("add", "--all")):
            said = _git(checkout, *words, index=index)
            if said.returncode != 0:
                raise TrainError(f"git {words[0]} in {checkout} failed: {_last(said)}")
        said = _git(
            checkout, "diff", "--cached", "--binary", "--no-ext-diff", *_ALONE, "HEAD", index=index
        )
        # What `add` stored of new files hangs on nothing, and git drops it by itself.
    if said.returncode != 0:
        raise TrainError(f"git diff in {checkout} failed: {_last(said)}")
    if len(said.stdout) > LARGEST_DIFF:
        raise TrainError(
            f"what was changed in {checkout} comes to {len(said.stdout) >> 20} MiB, more than"
            f" {LARGEST_DIFF >> 20}: commit it, or name large files in .gitignore"
        )
    return said.stdout


def keep(checkout: Path, folder: Path) -> list[list[str]]:
    """Write down what differs from the commit, in `code.diff`; return what to lay out again.

    That is [path, commit, name of the file with its difference] of the repository and of each
    submodule that is there. Raises TrainError.
    """
    found = []
    for number, (path, commit_) in enumerate([("", commit(checkout) or ""), *_modules(checkout)]):
        name = "code.diff" if number == 0 else f"code.{number}.diff"
        (folder / name).write_bytes(difference(checkout / path))
        found.append([path, commit_, name])
    return found


def _modules(checkout: Path) -> list[tuple[str, str]]:
    """Return (path, commit) of each submodule that is checked out, those within them included."""
    if not (checkout / ".gitmodules").exists():
        return []
    said = _git(checkout, "submodule", "--quiet", "foreach", "--recursive", _EACH)
    if said.returncode != 0:
        raise TrainError(f"the submodules of {checkout} cannot be told: {_last(said)}")
    rows = (line.partition(" ") for line in said.stdout.decode(errors="replace").splitlines())
    return [(path, commit_) for commit_, _, path in rows]


def lay_out_all(checkout: Path, folder: Path, parts: list[list[str]], diffs: Path) -> None:
    """Make a run's worktree, and in it those of its submodules; raises TrainError.

    + parts: what `keep` returned; diffs: the folder it wrote to
    """
    for path, commit_, name in parts:
        lay_out(checkout / path, folder / path, commit_, diffs / name)


def lay_out(checkout: Path, folder: Path, commit: str, diff: Path) -> None:
    """Make the worktree of a run, unless it is there; raises TrainError."""
    if (folder / ".git").exists():
        return
    _git(checkout, "worktree", "prune")
    said = _git(checkout, "worktree", "add", "--quiet", "--force", "--detach", str(folder), commit)
    if said.returncode != 0:
        raise TrainError(f"commit {commit[:12]} cannot be laid out in {folder}: {_last(said)}")
    if diff.exists() and diff.stat().st_size:
        said = _git(folder, "apply", "--whitespace=nowarn", "--binary", str(diff))
        if said.returncode != 0:
            raise TrainError(f"{diff} does not apply to {commit[:12]}: {_last(said)}")


def _last(said: subprocess.CompletedProcess[bytes]) -> str:
    lines = said.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"it ended with {said.returncode}"
