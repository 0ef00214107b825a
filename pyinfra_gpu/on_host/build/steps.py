"""What a build does, step by step. What an earlier one finished is left as it is."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import plan as planned
from .plan import SCIKIT, SETUPTOOLS, BuildError, Place, Plan, is_on

SAYS = "pyinfra-gpu: "
"""Begins each line of the journal in which this program says something itself."""

STAND_IN = "STAND-IN"
"""A file of this name says that a tree is none of PyTorch's, but one of our rehearsals."""

_CLEAN = ("clean", "--quiet", "-ffdx")
_TAIL, _ALL = 400, 100_000
"""Lines that are kept of what a program printed, to find its first error in."""

_ERROR = re.compile(
    r"(?i)(^|[\s:\]])(fatal error|error|undefined reference|killed signal|no space left"
    r"|cannot find|failed|fatal)\b"
    r"|^(?-i:[\w.]{0,80}(?:Error|Exception)): "  # what ends a traceback of Python's
)
_AFTERWARDS = re.compile(
    r"^(-- |ninja: build stopped|make(\[\d+\])?: \*\*\*|FAILED: |CMake Error: (?:CMAKE|Generator)"
    r"|-- Configuring incomplete|subprocess\.CalledProcessError)"
)
_NAME = re.compile(r"^\w+(?: \(ADVANCED\))?$")
_KILLED = re.compile(
    r"(?i)killed signal terminated program|^killed$|\bcc1plus\b.*\bkilled\b"
    r"|signal 9|exit code 137|out of memory allocating|virtual memory exhausted"
    r"|nvcc error *: '\w+' died due to signal 9"
)
_LIBUV = "TORCH_USE_LIBUV"
_CODE = re.compile(r"code=(?:\[)?((?:sm|compute)_\d+[af]?)|-arch[= ]((?:sm|compute)_\d+[af]?)")
_DECIDED = re.compile(r"^--\s{1,8}((?:USE|BUILD)_\w+)\s*:\s*(\S+)")
_VERSION = re.compile(r"^-- Building version (\S+)\s*$")


def say(text: str) -> None:
    """Print a line of our own into the journal; who follows the build shows it."""
    print(f"{SAYS}{text}", flush=True)


# -- files


def write_whole(path: Path, text: str) -> None:
    """Replace a file, so that no reader and no power cut shows half of it. Raises OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def text_of(path: Path) -> str:
    """Return a file's text without its end of line; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def sync(folder: Path) -> None:
    """Have everything on the file system of a folder on disk."""
    subprocess.run(["sync", "-f", str(folder)], check=False)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    made = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            made.update(chunk)
    return made.hexdigest()


def remove(path: Path) -> None:
    """Remove a file or a tree, whatever of it is there. Raises OSError where it cannot."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# -- programs


class Programs:
    """Runs programs one after the other; all that they print goes to the journal."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)

    def run(self, words: Sequence[str], *, what: str, **more: Any) -> list[str]:
        """Run a program, as `tried` does, and raise BuildError where it fails.

        + what: what it does, for the sentence, e.g. "configuring"
        """
        status, lines = self.tried(words, **more)
        if status != 0:
            raise failure(what, status, lines)
        return lines

    def tried(
        self, words: Sequence[str], *, cwd: Path | None = None, keep: int = _TAIL, **more: str
    ) -> tuple[int, list[str]]:
        """Run a program; return its exit status and the last lines that it printed.

        + more: variables beside those of all programs
        """
        print(f"+ {shlex.join(words)}", flush=True)
        kept: deque[str] = deque(maxlen=keep)
        try:
            running = subprocess.Popen(
                [*words], cwd=cwd, env={**self.environment, **more}, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                errors="replace",
            )  # fmt: skip
        except OSError as error:
            raise BuildError(f"{words[0]} cannot be run: {error.strerror}") from error
        with running:
            for line in running.stdout or ():
                print(line.rstrip("\n"), flush=True)
                kept.append(line.rstrip("\n"))
        return running.returncode, [*kept]


def failure(what: str, status: int, lines: Sequence[str]) -> BuildError:
    """Return the error of a program that failed, with its first error in front.

    What follows that is most often its consequence. Of ninja's it is in the step that failed first.
    """
    step = next((n for n, line in enumerate(lines) if line.startswith("FAILED: ")), 0)
    errors = (n for n in range(step, len(lines)) if _is_error(lines[n]))
    shown = [*lines[next(errors, max(len(lines) - 12, 0)) :][:12]]
    if shown and shown[0].endswith("NOTFOUND."):  # CMake names below what it did not find
        shown[0] += " ".join(["", *[each for each in shown[1:] if _NAME.match(each)][:1]])
    return BuildError(f"{what} failed" if shown else f"{what} ended with status {status}", shown)


def _is_error(line: str) -> bool:
    return bool(_ERROR.search(line)) and not _AFTERWARDS.search(line)


# -- the source


def fetch(plan: Plan, place: Place, run: Programs) -> None:
    """Have the commit in `source`, complete with its submodules. What was cut off goes on.

    PyTorch itself only looks whether any of six files of the submodules is there.
    """
    if text_of(place.fetched) != plan.commit:
        remove(place.fetched)
    try:
        _fetch_into(plan, place.source, run)
    except BuildError:
        if _is_sound(place.source, run):  # the network was cut: what came stays
            raise
        remove(place.source)
        _fetch_into(plan, place.source, run)
    sync(place.root)
    write_whole(place.fetched, plan.commit)


def _fetch_into(plan: Plan, tree: Path, run: Programs) -> None:
    """Have what is missing fetched, and what was changed put back; files of a build stay."""
    git, url = ["git", "-C", str(tree)], plan.git
    if not (tree / ".git").exists():
        remove(tree)
        run.run(["git", "init", "--quiet", str(tree)], what="making a repository")
    for lock in [*(tree / ".git").rglob("*.lock")]:  # of a git that was killed: no other is at work
        lock.unlink()
    _fetch_commit(git, url, plan.commit, run)
    force = ["checkout", "--quiet", "--force", "--detach", plan.commit]
    run.run([*git, *force], what="checking out")
    if not (tree / ".gitmodules").exists():
        return
    # Relative addresses of submodules count from the remote's.
    run.tried([*git, "remote", "remove", "origin"])
    # Else git takes submodules from no path: a tree must not choose it.
    local = ["-c", "protocol.file.allow=always"] if url.startswith("file:") else []
    for words in (
        ["remote", "add", "origin", url],
        ["submodule", "--quiet", "sync", "--recursive"],
        [*local, "submodule", "--quiet", "update", "--init", "--recursive", "--force"],
    ):
        run.run([*git, *words], what="fetching the submodules")


def _fetch_commit(git: list[str], url: str, commit: str, run: Programs) -> None:
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
    # git takes an annotated tag's own name for its commit, and torch would have another.
    if run.tried([*git, "cat-file", "-t", commit])[1][-1:] == ["tag"]:
        meant = run.tried([*git, "rev-parse", f"{commit}^{{commit}}"])[1]
        raise BuildError(
            f"pytorch_commit {commit} is a tag, which may be moved: set pytorch_commit to its"
            f" commit, {' '.join(meant[-1:])}"
        )


def _is_sound(tree: Path, run: Programs) -> bool:
    """Tell whether every repository of a checkout has the commit that it says is checked out.

    git cannot go on with one that a kill left half cloned.
    """
    modules, found = tree / ".git/modules", [tree / ".git"]
    named = ["config", "--file", str(tree / ".gitmodules"), "--name-only", "--get-regexp", "path$"]
    for row in run.tried(["git", *named])[1]:
        own = modules / row.removeprefix("submodule.").removesuffix(".path")
        found += [own] if own.exists() else []
        found += [each.parent.parent for each in own.glob("**/modules/**/objects/pack")]
    verify = ["rev-parse", "--quiet", "--verify", "HEAD^{tree}"]
    return all(run.tried(["git", "--git-dir", str(each), *verify])[0] == 0 for each in found)


# -- what a tree says of itself


def backend(tree: Path) -> str:
    """Return which of the two backends builds a tree.

    PyTorch 2.14 and newer have a setup.py still, which only forwards: pyproject.toml counts.
    """
    text = text_of(tree / "pyproject.toml")
    named = re.search(r"^build-backend\s*=\s*[\"']([\w.]+)", text, re.M)
    name = named[1] if named else "setuptools" if (tree / "setup.py").exists() else "none"
    for known in (SETUPTOOLS, SCIKIT):
        if name.startswith(known.replace("-", "_")):
            return known
    raise BuildError(
        f"the source names the build backend {name}, and this builds trees of {SETUPTOOLS} and of"
        f" {SCIKIT}: is it PyTorch at all?"
    )


def requires(tree: Path) -> list[str]:
    """Return what a tree needs to be built, as the words that uv takes for it.

    Python before 3.11 has no reader of TOML, which writes lists of texts as Python does: the list
    ends at the first bracket with which it is one.
    """
    begun = re.search(r"^requires\s*=\s*(\[.*)", text_of(tree / "pyproject.toml"), re.M | re.S)
    listed, found = begun[1] if begun else "", list[str]()
    for end in re.finditer(r"\]", listed):
        with suppress(SyntaxError, ValueError):
            found = [str(each) for each in ast.literal_eval(listed[: end.end()])]
            break
    more = tree / "requirements-build.txt"
    return [*found, "--requirement", str(more)] if more.exists() else found


def is_stand_in(tree: Path) -> bool:
    """Tell whether a tree says of itself that it is a rehearsal's."""
    return (tree / STAND_IN).exists()


# -- what builds it


def tools(plan: Plan, place: Place, run: Programs) -> None:
    """Have a virtual environment with what builds torch; the one that is there where it fits."""
    wanted = [*plan.tools, *requires(place.source)]
    asked = [plan.python, *wanted, text_of(place.source / "requirements-build.txt")]
    stamp = hashlib.sha256("\n".join(asked).encode()).hexdigest()
    mark = place.tools / ".pyinfra-gpu-tools"
    if text_of(mark) == stamp:
        return
    remove(place.tools)
    install(plan, place.tools, wanted, run, what="installing what builds torch")
    sync(place.root)
    write_whole(mark, stamp)


def install(plan: Plan, folder: Path, wanted: list[str], run: Programs, *, what: str) -> None:
    """Make a virtual environment of the declared Python with these requirements, or wheels."""
    words = [plan.uv, "venv", "--quiet", "--no-managed-python", "--no-config"]
    words += ["--cache-dir", plan.cache, "--python", plan.python, str(folder)]
    run.run(words, what="making a virtual environment")
    words = [plan.uv, "pip", "install", "--no-config", "--python", f"{folder}/bin/python"]
    run.run([*words, "--cache-dir", plan.cache, *plan.sources, *wanted], what=what)


# -- configuring and compiling


def configure(plan: Plan, place: Place, run: Programs) -> None:
    """Have a build folder made by this very plan, as it is declared.

    CMake keeps what it once found, and clones NCCL only where nothing is at its place, be it half
    of it. So it begins with the tree as it was fetched; what is compiled is in ccache.
    """
    inner = ["submodule", "--quiet", "foreach", "--recursive", f"git {' '.join(_CLEAN)}"]
    for clean in (_CLEAN, inner):
        run.run(["git", "-C", str(place.source), *clean], what="cleaning the checkout")
    words = planned.configure_words(plan, place, backend(place.source))
    lines = run.run(words, what="configuring", cwd=place.source, keep=_ALL)
    if not (place.build / "build.ninja").exists():
        raise BuildError(
            "configuring ended well and left no build/build.ninja: the tree was not configured for"
            " ninja, with which it is built here"
        )
    check(plan, place, lines)
    sync(place.build)
    write_whole(place.configured, plan.fingerprint)


def check(plan: Plan, place: Place, lines: Sequence[str]) -> None:
    """Raise BuildError where hours would be spent on another build than the declared one.

    + lines: what configuring printed

    CMake's summary cannot prove libuv or the architectures: with a system TensorPipe it says
    "distributed 1, tensorpipe 1", and not one file is compiled with TORCH_USE_LIBUV.
    """
    if is_stand_in(place.source) and not plan.rehearsal:
        raise BuildError(
            "the source calls itself a stand-in for rehearsals, and this host is declared as a real"
            " one: set pytorch_git_url to PyTorch's repository, or rehearsal = True"
        )
    for row in lines:
        version, decided = _VERSION.match(row), _DECIDED.match(row)
        if version and version[1] != plan.version:
            raise BuildError(
                f"the tree would build torch {version[1]}, and {plan.version} is declared: it does"
                " not take PYTORCH_BUILD_VERSION, as a distribution's patched source does not"
            )
        wanted = plan.settings.get(decided[1], "") if decided else ""
        if (
            decided
            and re.fullmatch(r"(?i)0|1|on|off", wanted)
            and is_on(decided[2]) != is_on(wanted)
        ):
            raise BuildError(  # CMake switches off what it does not find
                f"{decided[1]} = {wanted} is declared, and CMake decided otherwise:"
                f" `{row.strip()}`: the journal says above that line what it lacks"
            )
    libuv, code = False, set()
    for row in _commands(place.build):
        libuv = libuv or _LIBUV in row
        code |= {one or two for one, two in _CODE.findall(row)}
    if plan.wants("USE_DISTRIBUTED") and not libuv:
        raise BuildError(
            f"no command in build.ninja defines {_LIBUV}, so this torch would have no libuv, and"
            " torchrun could not run: use the TensorPipe of the tree, with USE_TENSORPIPE and"
            " USE_DISTRIBUTED on and no USE_SYSTEM_LIBS or USE_SYSTEM_TENSORPIPE"
        )
    made = sorted({each.rstrip("af") for each in code if each.startswith("sm_")})
    if plan.cuda is not None and made != plan.code:
        raise BuildError(
            f"nvcc would make code for {', '.join(made) or 'nothing'}, and pytorch_archs declares"
            f" {', '.join(plan.code)}"
        )


def _commands(build: Path) -> Iterator[str]:
    """Yield the lines of build.ninja that may say something; PyTorch's has a hundred thousand."""
    for path in (build / "build.ninja", *sorted(build.glob("CMakeFiles/rules.ninja"))):
        with path.open(encoding="utf-8", errors="replace") as rows:
            yield from (row for row in rows if _LIBUV in row or "code=" in row or "-arch" in row)


def compile_all(plan: Plan, place: Place, run: Programs) -> None:
    """Have everything compiled that ninja knows of; where memory runs out, half as many go on."""
    flash = ["git", "-C", str(place.source), "grep", "--quiet", planned.FLASH_JOBS]
    number = planned.jobs(plan, counts_flash=run.tried(flash)[0] == 0)
    label = "stand-in" if is_stand_in(place.source) else "%W left"
    while True:
        words = planned.compile_words(place, str(number))
        status, lines = run.tried(words, NINJA_STATUS=f"[%f/%t] {label}, ")
        if status == 0:
            return
        if not any(_KILLED.search(line) for line in lines):
            raise failure("compiling", status, lines)
        if number == 1:
            raise BuildError(
                f"one compiler alone needs more than the {plan.memory_mib} MiB that this build may"
                " use: raise pytorch_build_memory_gib, or build on a host with more memory"
            )
        number //= 2
        say(f"memory ran out: the build goes on with {number} compilers side by side")


def make_wheel(plan: Plan, place: Place, run: Programs) -> None:
    """Have exactly one wheel in the folder of wheels, with the declared name."""
    remove(place.made)
    number = str(planned.jobs(plan, counts_flash=False))
    words = planned.wheel_words(place, backend(place.source))
    run.run(words, what="making the wheel", MAX_JOBS=number)
    found = sorted(place.made.glob("*.whl"))
    if len(found) != 1:
        raise BuildError(f"the build left {len(found)} wheels, and one is expected")
    name, version = found[0].name.split("-")[:2]
    if (name, version) != ("torch", plan.version):
        raise BuildError(
            f"the wheel is {name} {version}, and torch {plan.version} is declared: the tree does"
            " not take PYTORCH_BUILD_VERSION"
        )
    remove(place.wheels)
    sync(place.root)
    place.made.rename(place.wheels)
