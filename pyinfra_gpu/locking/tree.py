"""What a tree says that it needs, read on this machine: the wheel of it is not there yet.

Of a repository only a few files are fetched, where its server can do that; of an archive no more is
kept than these.
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
import urllib.request
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from pyinfra_gpu.locking.errors import LockingError
from pyinfra_gpu.locking.needs import Source
from pyinfra_gpu.on_host.build import tree
from pyinfra_gpu.text import shortened

_FILES = ("pyproject.toml", "requirements-build.txt", "setup.py")
_LONGEST = 1 << 20
_DEADLINE_S = 900.0
_ANSWER_S = 60.0
_NAMED = "install_requires"


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeNeeds:
    """Requirements: of what builds a tree, and of what is built of it."""

    build: tuple[str, ...]
    run: tuple[str, ...]


def read(source: Source) -> TreeNeeds:
    """Return what the declared tree needs. Raises LockingError."""
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "tree"
        folder.mkdir()
        if source.git:
            _from_repository(source, Path(work) / "git", folder)
        else:
            _from_archive(source, folder)
        if not any(folder.iterdir()):
            raise LockingError(
                f"{source.git or source.archive} has neither of {', '.join(_FILES)} at its top, so"
                " it does not say what torch needs: is it PyTorch at all?"
            )
        return TreeNeeds(build=tuple(tree.requires(folder)), run=_run_needs(folder))


def _from_repository(source: Source, git: Path, folder: Path) -> None:
    url, commit = source.git, source.identity
    _begun(git, url)
    quick = ("fetch", "--quiet", "--no-tags", "--depth=1", "--filter=blob:none", "origin", commit)
    if _tried(git, *quick).returncode != 0:
        # Anew: git would go on to fetch object by object, as from a server that can filter.
        shutil.rmtree(git)
        _begun(git, url)
        every = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        _git(git, url, "fetch", "--quiet", "origin", *every)
    if _tried(git, "cat-file", "-e", f"{commit}^{{commit}}").returncode != 0:
        raise LockingError(
            f"{url} has no commit {commit}: set pytorch_commit to what `git ls-remote {url}`"
            " prints for a tag"
        )
    there = _git(git, url, "ls-tree", "--name-only", commit).split("\n")
    for name in _FILES:
        if name in there:
            (folder / name).write_text(_git(git, url, "show", f"{commit}:{name}")[:_LONGEST])


def _begun(git: Path, url: str) -> None:
    _git(git, url, "init", "--quiet", "--bare")
    _git(git, url, "remote", "add", "origin", "--", url)


def _git(git: Path, url: str, *words: str) -> str:
    done = _tried(git, *words)
    if done.returncode != 0:
        said = shortened(done.stderr, 300) or "git said nothing"
        raise LockingError(
            f"what torch needs stands in its tree, and {url} cannot be read from here: {said}; see"
            " that this machine reaches it, or set pytorch_git_url to a mirror that both reach"
        )
    return done.stdout


def _tried(git: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_DIR": str(git), "LC_ALL": "C"}
    try:
        return subprocess.run(
            ["git", *words], env=environment, capture_output=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL, timeout=_DEADLINE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise LockingError(f"git did not end within {_DEADLINE_S:.0f} s; try again") from None
    except OSError as error:
        raise LockingError(f"git cannot be run: {error}; install it") from None


class _Digested(io.RawIOBase):
    """A stream, and the digest of all that was read of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.made = stream, hashlib.sha256()

    def readable(self) -> bool:
        """Return that it is."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        block = self._stream.read(size)
        self.made.update(block)
        return block


def _from_archive(source: Source, folder: Path) -> None:
    url = source.archive
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:  # noqa: S310 - data says which
            stream = _Digested(answer)
            with tarfile.open(fileobj=stream, mode="r|*") as archive:
                for member in archive:
                    _take(archive, member, folder)
            while stream.read(1 << 20):
                pass  # a digest is of the whole file
    except (OSError, tarfile.TarError, EOFError) as error:
        raise LockingError(
            f"what torch needs stands in its tree, and {url} cannot be read from here: {error}; see"
            " that this machine reaches it, or set pytorch_source_url to a mirror that both reach"
        ) from None
    found = stream.made.hexdigest()
    if found != source.identity:
        raise LockingError(
            f"{url} has SHA-256 {found}, and pytorch_source_sha256 is {source.identity}: another"
            " file is served there, or the declared digest is wrong"
        )


def _take(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Keep one of the files that stand at the top of the archive's folder."""
    parts = PurePosixPath(member.name).parts
    if len(parts) == 2 and parts[1] in _FILES and member.isfile():
        content = archive.extractfile(member)
        assert content is not None  # noqa: S101 - it is a file
        (folder / parts[1]).write_bytes(content.read(_LONGEST))


def _run_needs(folder: Path) -> tuple[str, ...]:
    """Return what the built torch will need: as pyproject.toml says it, else setup.py."""
    project = _project(folder / "pyproject.toml")
    listed = project.get("dependencies")
    if isinstance(listed, list):
        return tuple(str(each) for each in listed)
    script = folder / "setup.py"
    return _in_script(script.read_text(encoding="utf-8")) if script.exists() else ()


def _project(path: Path) -> dict[str, object]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")).get("project")
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise LockingError(f"the tree's {path.name} is no TOML ({error})") from None
    return found if isinstance(found, dict) else {}


def _in_script(text: str) -> tuple[str, ...]:
    """Return the list that PyTorch's setup.py gives the name install_requires."""
    try:
        parsed = ast.parse(text)
    except SyntaxError as error:
        raise LockingError(f"the tree's setup.py is no Python of today's ({error})") from None
    for node in ast.walk(parsed):
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        if not any(isinstance(each, ast.Name) and each.id == _NAMED for each in targets):
            continue
        assert isinstance(node, ast.Assign | ast.AnnAssign)  # noqa: S101 - only those have targets
        value = node.value
        if isinstance(value, ast.List) and all(isinstance(e, ast.Constant) for e in value.elts):
            return tuple(str(each) for each in ast.literal_eval(value))
        raise LockingError(
            f"the tree's setup.py computes {_NAMED}, so what torch needs cannot be read: set"
            " pytorch_lock = 'ignore'"
        )
    return ()
