"""The source: whole or not at all. What was cut off goes on, and gets its name when it is whole."""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import time
import urllib.error
import urllib.request
from pathlib import Path, PurePosixPath

from .commands import Commands, failure
from .errors import BuildError
from .files import digest, remove, sync
from .place import Place
from .plan import Plan

NCCL = "https://github.com/NVIDIA/nccl"
_TRIES = 5
_CHUNK = 1 << 20
_SHOWN = 3


def fetch(plan: Plan, place: Place, run: Commands, *, unclean: bool) -> None:
    """Have the declared source in the folder, complete and clean.

    + unclean: the machine went down meanwhile, so what was fetched is not believed
    """
    if unclean:
        remove(place.part)
    if plan.commit is None:
        _tarball(plan, place)
    else:
        _repository(plan, plan.commit, place, run)
    if plan.wants("USE_NCCL") and not plan.wants("USE_SYSTEM_NCCL"):
        _nccl(place.source, run, plan.nccl or NCCL)
    sync(place.root)


def _repository(plan: Plan, commit: str, place: Place, run: Commands) -> None:
    if place.source.exists():
        if wrong_with(place.source, commit, run) is None:
            return
        # Its objects serve for another commit, too; it has that name again when it is whole.
        remove(place.part)
        shutil.move(place.source, place.part)  # a folder of a lower layer cannot be renamed alone
    git = ["git", "-C", str(place.part)]
    url = plan.source["git"]
    if not (place.part / ".git").exists():
        remove(place.part)
        run.run(["git", "init", "--quiet", str(place.part)], what="making a repository")
    _fetch_commit(git, url, commit, run)
    run.run([*git, "checkout", "--quiet", "--force", "--detach", commit], what="checking out")
    run.run([*git, "clean", "--quiet", "-ffdx"], what="cleaning the checkout")
    _submodules(git, url, place.part, run)
    wrong = wrong_with(place.part, commit, run)
    if wrong:
        raise BuildError(f"the source is not whole after fetching it from {url}: {wrong}")
    sync(place.root)
    place.part.rename(place.source)


def _fetch_commit(git: list[str], url: str, commit: str, run: Commands) -> None:
    """Have a commit: it alone where the server hands it out, else every branch and tag."""
    there = [*git, "cat-file", "-e", f"{commit}^{{commit}}"]
    if run.tried(there)[0] == 0:
        return
    quick = [*git, "fetch", "--quiet", "--no-tags", "--depth=1", "--", url, commit]
    if run.tried(quick)[0] != 0:
        every = ["+refs/heads/*:refs/pyinfra-gpu/heads/*", "+refs/tags/*:refs/tags/*"]
        run.run([*git, "fetch", "--quiet", "--", url, *every], what=f"fetching {url}")
    if run.tried(there)[0] != 0:
        raise BuildError(
            f"{url} has no commit {commit}: set pytorch_commit to what"
            f" `git ls-remote {url}` prints for a tag"
        )
    _refuse_tag(git, commit, run)


def _refuse_tag(git: list[str], commit: str, run: Commands) -> None:
    """Refuse the name of an annotated tag: git takes it for its commit, and torch has another."""
    kind = run.tried([*git, "cat-file", "-t", commit])[1]
    if kind[-1:] == ["tag"]:
        meant = run.tried([*git, "rev-parse", f"{commit}^{{commit}}"])[1]
        raise BuildError(
            f"pytorch_commit {commit} is a tag, which may be moved: set pytorch_commit to its"
            f" commit, {' '.join(meant[-1:])}"
        )


def _submodules(git: list[str], url: str, tree: Path, run: Commands) -> None:
    if not (tree / ".gitmodules").exists():
        return
    # Relative addresses of submodules count from the remote's.
    run.tried([*git, "remote", "remove", "origin"])
    run.run([*git, "remote", "add", "origin", url], what="naming the repository")
    update = ["submodule", "--quiet", "update", "--init", "--recursive", "--force"]
    if url.startswith("file:"):  # else git takes submodules from no path: a tree must not choose it
        update = ["-c", "protocol.file.allow=always", *update]
    steps = {
        "reading .gitmodules": [*git, "submodule", "--quiet", "sync", "--recursive"],
        "fetching the submodules": [*git, *update],
    }
    for what, words in steps.items():
        status, lines = run.tried(words)
        if status != 0:
            half = _half_fetched(git, tree, run)
            if not half:  # the network was cut: what came stays, and the next run goes on
                raise failure(what, status, lines)
            for each in half:
                remove(each)
            run.run(steps["reading .gitmodules"], what="reading .gitmodules")
            run.run(steps["fetching the submodules"], what="fetching the submodules")
            return


def _half_fetched(git: list[str], tree: Path, run: Commands) -> list[Path]:
    """Return the folders of submodules of which a cut left half: git cannot go on with these."""
    found: list[Path] = []
    named = ["config", "--file", str(tree / ".gitmodules"), "--get-regexp", r"\.path$"]
    for row in run.tried([*git, *named])[1]:
        key, _, path = row.partition(" ")
        name = key.removeprefix("submodule.").removesuffix(".path")
        parts = (*PurePosixPath(path).parts, *PurePosixPath(name).parts)
        repository = tree / ".git/modules" / name
        if ".." in parts or "/" in parts or not repository.exists():
            continue
        if not _is_whole(repository, run):
            found += [tree / path, repository]
    return found


def _is_whole(repository: Path, run: Commands) -> bool:
    """Tell whether a submodule's repository, and those of its own submodules, have their commit."""
    words = ["rev-parse", "--quiet", "--verify", "HEAD^{tree}"]
    if run.tried(["git", "--git-dir", str(repository), *words])[0] != 0:
        return False
    inner = (repository / "modules").rglob("HEAD")
    own = [each.parent for each in inner if (each.parent / "objects").is_dir()]
    return all(run.tried(["git", "--git-dir", str(each), *words])[0] == 0 for each in own)


def wrong_with(tree: Path, commit: str, run: Commands) -> str | None:
    """Return in what a checkout is not the commit, whole and clean; None where it is.

    PyTorch itself only looks whether any of six files of the submodules is there.
    """
    git = ["git", "-C", str(tree)]
    status, head = run.tried([*git, "rev-parse", "HEAD"])
    if status != 0 or head[-1:] != [commit]:
        return f"it is at {head[-1] if head else 'nothing'}, not at {commit}"
    status, rows = run.tried([*git, "submodule", "status", "--recursive"])
    if status != 0:
        return f"its submodules cannot be read: {rows[-1] if rows else 'git said nothing'}"
    wrong = [row.split()[1] for row in rows if row[:1] in "-+U" and len(row.split()) > 1]
    if wrong:
        return f"submodules are missing or at another commit: {', '.join(wrong[:_SHOWN])}"
    clean = ["status", "--porcelain", "--untracked-files=no", "--ignore-submodules=none"]
    status, rows = run.tried([*git, *clean])
    if status != 0 or rows:
        return f"files in it were changed: {', '.join(row[3:] for row in rows[:_SHOWN])}"
    return None


def _tarball(plan: Plan, place: Place) -> None:
    """Fetch a release's archive, compare its digest, and unpack it."""
    wanted, mark = plan.source["sha256"], place.source / ".pyinfra-gpu-source"
    if place.source.exists():
        if mark.exists() and mark.read_text().strip() == wanted:
            return
        remove(place.source)
    archive = place.root / "source.tar"
    _download(plan.source["url"], archive, wanted)
    remove(place.part)
    place.part.mkdir()
    _unpack(archive, place.part)
    tops = [*place.part.iterdir()]
    if len(tops) != 1 or not tops[0].is_dir():
        raise BuildError(
            f"{plan.source['url']} holds {len(tops)} entries and not one folder: it is no archive"
            " of a release"
        )
    (tops[0] / mark.name).write_text(f"{wanted}\n")
    sync(place.root)
    tops[0].rename(place.source)
    remove(place.part)
    remove(archive)


def _download(url: str, target: Path, wanted: str) -> None:
    for attempt in range(_TRIES):
        if target.exists() and digest(target) == wanted:
            return
        try:
            _go_on(url, target)
        except (urllib.error.URLError, OSError) as error:
            if attempt == _TRIES - 1:
                raise BuildError(f"{url} cannot be fetched: {error}") from error
            time.sleep(2**attempt)
            continue
        found = digest(target)
        if found == wanted:
            return
        remove(target)
        raise BuildError(
            f"{url} has SHA-256 {found}, and pytorch_source_sha256 is {wanted}: another file is"
            " served there, or the declared digest is wrong"
        )


def _go_on(url: str, target: Path) -> None:
    """Fetch what is missing of a file; all of it where the server hands out no part."""
    have = target.stat().st_size if target.exists() else 0
    request = urllib.request.Request(url)  # noqa: S310 (data allows https, http and file)
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        goes_on = have and getattr(answer, "status", None) == 206
        with target.open("ab" if goes_on else "wb") as file:
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())


def _unpack(archive: Path, folder: Path) -> None:
    try:
        with tarfile.open(archive) as content:
            if hasattr(tarfile, "data_filter"):
                content.extractall(folder, filter="data")
                return
            for member in content:
                _refuse_escape(member)
                content.extract(member, folder)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise BuildError(f"the source's archive cannot be unpacked: {error}") from error


def _refuse_escape(member: tarfile.TarInfo) -> None:
    """Refuse what would be written outside; newer Pythons do so themselves."""
    names = [member.name, *([member.linkname] if member.issym() or member.islnk() else [])]
    for name in names:
        if name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise BuildError(f"the source's archive leads out of its folder: {member.name}")
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        raise BuildError(f"the source's archive holds a device: {member.name}")


def _nccl(tree: Path, run: Commands, url: str) -> None:
    """Have NCCL at the tag that the tree pins, whole or not at all.

    While it configures PyTorch clones it by itself, unless there is anything at all at its place.
    """
    place, tag = tree / "third_party/nccl", nccl_tag(tree)
    if tag is None or ((tree / ".gitmodules").exists() and _tracks(tree, place)):
        return
    if place.exists():
        there = run.tried(["git", "-C", str(place), "describe", "--tags", "--exact-match"])[1]
        clean = run.tried(["git", "-C", str(place), "status", "--porcelain"])
        if there[-1:] == [tag] and clean == (0, []):
            return
        remove(place)
    part = place.with_name("nccl.part")
    remove(part)
    clone = ["git", "clone", "--quiet", "--depth=1", "--branch", tag, "--", url, str(part)]
    run.run(clone, what=f"fetching NCCL {tag}")
    sync(tree)
    part.rename(place)


def _tracks(tree: Path, place: Path) -> bool:
    """Tell whether NCCL is one of the tree's own submodules, as it was until PyTorch 2.6."""
    text = (tree / ".gitmodules").read_text(encoding="utf-8", errors="replace")
    return f"path = {place.relative_to(tree)}" in text


def nccl_tag(tree: Path) -> str | None:
    """Return the tag of NCCL that a tree pins, None where it pins none."""
    pins = sorted((tree / ".ci/docker/ci_commit_pins").glob("nccl*.txt"))
    found = [re.match(r"\S+", pin.read_text(encoding="utf-8").strip()) for pin in pins]
    tags = {match[0] for match in found if match}
    return sorted(tags)[-1] if tags else None
