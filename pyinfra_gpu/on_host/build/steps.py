"""What a build does, step by step. What an earlier one finished is left as it is."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .plan import BuildError, CommitError, Place, Plan

SAYS = "pyinfra-gpu: "
"""Begins each line of the journal in which this program says something itself."""

STAND_IN = "STAND-IN"
"""A file of this name says that a tree is none of PyTorch's, but one of our rehearsals."""

_CLEAN = ("clean", "--quiet", "-ffdx")
_KEPT = 100_000
"""Lines that are kept of what a program printed, to find its first error in."""

_ERROR = re.compile(
    r"(?i)(^|[\s:\]])(fatal error|error|undefined reference|no space left|cannot find|fatal)\b"
    r"|^(?-i:[\w.]{0,80}(?:Error|Exception)): "  # what ends a traceback of Python's
)
_NO_ERROR = re.compile(r"^(-- |ninja: build stopped|FAILED: |subprocess\.CalledProcessError)")
_KILLED = re.compile(
    r"(?i)killed signal terminated program|^killed$|\bcc1plus\b.*\bkilled\b"
    r"|signal 9|exit code 137|out of memory allocating|virtual memory exhausted"
)
_LIBUV = "TORCH_USE_LIBUV"
_CODE = re.compile(r"(?:code=\[?|-arch[= ])(sm_\d+)")
_VERSION = re.compile(r"^-- Building version (\S+)\s*$", re.M)
_REQUIRES = """\
import build, sys
print(*build.ProjectBuilder(sys.argv[1]).build_system_requires, sep="\\n")
"""


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
        self, words: Sequence[str], *, cwd: Path | None = None, **more: str
    ) -> tuple[int, list[str]]:
        """Run a program; return its exit status and the last lines that it printed.

        + more: variables beside those of all programs
        """
        print(f"+ {shlex.join(words)}", flush=True)
        kept: deque[str] = deque(maxlen=_KEPT)
        try:
            running = subprocess.Popen(
                [*words], cwd=cwd, env={**self.environment, **more}, text=True, errors="replace",
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        except OSError as error:
            raise BuildError(f"{words[0]} cannot be run: {error.strerror}") from error
        with running:
            for line in running.stdout or ():
                print(line.rstrip("\n"), flush=True)
                kept.append(line.rstrip("\n"))
        return running.returncode, [*kept]

    def git(self, tree: Path, *words: str, what: str) -> list[str]:
        """Run git in a tree, and raise BuildError where it fails."""
        return self.run(["git", "-C", str(tree), *words], what=what)


def failure(what: str, status: int, lines: Sequence[str]) -> BuildError:
    """Return the error of a program that failed, with its first error in front.

    What follows that is most often its consequence. Of ninja's it is in the step that failed first.
    """
    step = next((n for n, line in enumerate(lines) if line.startswith("FAILED: ")), 0)
    errors = (
        number
        for number in range(step, len(lines))
        if _ERROR.search(lines[number]) and not _NO_ERROR.match(lines[number])
    )
    shown = [*lines[next(errors, max(len(lines) - 12, 0)) :][:12]]
    return BuildError(f"{what} failed" if shown else f"{what} ended with status {status}", shown)


# -- the source


def fetch(plan: Plan, place: Place, run: Programs) -> None:
    """Have the commit in `source`, complete with its submodules. What was cut off goes on.

    PyTorch itself only looks whether any of six files of the submodules is there.
    """
    if text_of(place.fetched) != plan.commit:
        remove(place.fetched)
    try:
        _fetch_into(plan, place.source, run)
    except CommitError:
        raise
    except BuildError:
        if run.tried(["git", "ls-remote", "--quiet", plan.git, "HEAD"])[0] != 0:
            raise  # the network was cut: what came stays
        remove(place.source)  # git cannot go on with what a kill left half cloned
        _fetch_into(plan, place.source, run)
    sync(place.root)
    write_whole(place.fetched, plan.commit)


def _fetch_into(plan: Plan, tree: Path, run: Programs) -> None:
    """Have what is missing fetched, and what was changed put back; files of a build stay."""
    if not (tree / ".git").exists():
        remove(tree)
        run.run(["git", "init", "--quiet", str(tree)], what="making a repository")
        # Relative addresses of submodules count from the remote's.
        run.git(tree, "remote", "add", "origin", plan.git, what="naming the repository")
    for lock in [*(tree / ".git").rglob("*.lock")]:  # of a git that was killed: no other is at work
        lock.unlink()
    run.git(tree, "remote", "set-url", "origin", plan.git, what="naming the repository")
    _fetch_commit(plan, tree, run)
    force = ("checkout", "--quiet", "--force", "--detach", plan.commit)
    run.git(tree, *force, what="checking out")
    if not (tree / ".gitmodules").exists():
        return
    # Else git takes submodules from no path: a tree must not choose it.
    local = ("-c", "protocol.file.allow=always") if plan.git.startswith("file:") else ()
    for words in (
        ("submodule", "--quiet", "sync", "--recursive"),
        (*local, "submodule", "--quiet", "update", "--init", "--recursive", "--force"),
    ):
        run.git(tree, *words, what="fetching the submodules")


def _fetch_commit(plan: Plan, tree: Path, run: Programs) -> None:
    """Have a commit: it alone where the server hands it out, else every branch and tag."""
    git = ["git", "-C", str(tree)]
    meant = [*git, "rev-parse", "--verify", "--quiet", f"{plan.commit}^{{commit}}"]
    if run.tried(meant)[0] != 0:
        fetched = ["fetch", "--quiet", "--no-tags", "--depth=1", "origin", plan.commit]
        if run.tried([*git, *fetched])[0] != 0:
            every = ("+refs/heads/*:refs/pyinfra-gpu/*", "+refs/tags/*:refs/tags/*")
            run.git(tree, "fetch", "--quiet", "origin", *every, what=f"fetching {plan.git}")
    found = run.tried(meant)[1][-1:]
    if found != [plan.commit]:  # of an annotated tag's own name, git takes its commit
        tag = f": it names a tag, which may be moved, of {found[0]}" if found else ""
        raise CommitError(
            f"{plan.git} has no commit {plan.commit}{tag}: set pytorch_commit to what"
            f" `git ls-remote {plan.git}` prints for a branch, or for a tag with ^{{}} behind it"
        )


def is_stand_in(tree: Path) -> bool:
    """Tell whether a tree says of itself that it is a rehearsal's."""
    return (tree / STAND_IN).exists()


def is_scikit(tree: Path) -> bool:
    """Tell whether scikit-build-core builds a tree; else setuptools does.

    PyTorch 2.14 and newer have a setup.py still, which only forwards: pyproject.toml counts.
    """
    backend = re.search(
        r"^build-backend\s*=\s*[\"']([\w.]+)", text_of(tree / "pyproject.toml"), re.M
    )
    name = backend[1] if backend else "setuptools" if (tree / "setup.py").exists() else "none"
    if not name.startswith(("setuptools", "scikit_build_core")):
        raise BuildError(
            f"the source names the build backend {name}, and this builds trees of setuptools and of"
            " scikit-build-core: is it PyTorch at all?"
        )
    return name.startswith("scikit")


# -- what builds it


def tools(plan: Plan, place: Place, run: Programs) -> None:
    """Have a virtual environment with what builds torch; the one that is there where it fits."""
    more = place.source / "requirements-build.txt"
    asked = [plan.python, *plan.tools, text_of(place.source / "pyproject.toml"), text_of(more)]
    stamp = hashlib.sha256("\n".join(asked).encode()).hexdigest()
    mark = place.tools / ".pyinfra-gpu-tools"
    if text_of(mark) == stamp:
        return
    remove(place.tools)
    what = "installing what builds torch"
    make_environment(plan, place.tools, plan.tools, run, what=what)
    python = str(place.tools / "bin/python")
    asks = run.run([python, "-c", _REQUIRES, str(place.source)], what=what)
    wanted = [each for each in asks if each]
    wanted += ["--requirement", str(more)] if more.exists() else []
    if wanted:
        install(plan, place.tools, wanted, run, what=what)
    sync(place.root)
    write_whole(mark, stamp)


def make_environment(
    plan: Plan, folder: Path, wanted: Sequence[str], run: Programs, *, what: str
) -> None:
    """Make a virtual environment of the declared Python with these requirements, or wheels."""
    words = [plan.uv, "venv", "--quiet", "--no-managed-python", "--no-config"]
    words += ["--cache-dir", plan.cache, "--python", plan.python, str(folder)]
    run.run(words, what="making a virtual environment")
    install(plan, folder, wanted, run, what=what)


def install(plan: Plan, folder: Path, wanted: Sequence[str], run: Programs, *, what: str) -> None:
    """Install requirements, or wheels, into a virtual environment."""
    words = [plan.uv, "pip", "install", "--no-config", "--python", f"{folder}/bin/python"]
    run.run([*words, "--cache-dir", plan.cache, *plan.sources, *wanted], what=what)


# -- configuring and compiling


def configure(plan: Plan, place: Place, run: Programs) -> None:
    """Have a build folder made by this very plan, as it is declared.

    CMake keeps what it once found, and clones NCCL only where nothing is at its place, be it half
    of it. So it begins with the tree as it was fetched; what is compiled is in ccache.
    """
    inner = ("submodule", "--quiet", "foreach", "--recursive", f"git {' '.join(_CLEAN)}")
    for clean in (_CLEAN, inner):
        run.git(place.source, *clean, what="cleaning the checkout")
    python = str(place.tools / "bin/python")
    words = [python, "setup.py", "build", "--cmake-only"]
    if is_scikit(place.source):
        # It cannot configure alone; what it would call is CMake all the same.
        words = ["cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
        words += [f"-D{name}={value}" for name, value in plan.settings.items()]
        words += [f"-DPython_EXECUTABLE={python}"]
    lines = run.run(words, what="configuring", cwd=place.source)
    if not (place.build / "build.ninja").exists():
        raise BuildError(
            "configuring ended well and left no build/build.ninja: the tree was not configured for"
            " ninja, with which it is built here"
        )
    check(plan, place, "\n".join(lines))
    sync(place.build)
    write_whole(place.configured, plan.fingerprint)


def check(plan: Plan, place: Place, said: str) -> None:
    """Raise BuildError where hours would be spent on another build than the declared one.

    + said: what configuring printed

    CMake's summary cannot prove libuv or the architectures: with a system TensorPipe it says
    "distributed 1, tensorpipe 1", and not one file is compiled with TORCH_USE_LIBUV.
    """
    if is_stand_in(place.source) and not plan.rehearsal:
        raise BuildError(
            "the source calls itself a stand-in for rehearsals, and this host is declared as a real"
            " one: set pytorch_git_url to PyTorch's repository, or rehearsal = True"
        )
    version = _VERSION.search(said)
    if version and version[1] != plan.version:
        raise BuildError(
            f"the tree would build torch {version[1]}, and {plan.version} is declared: it does"
            " not take PYTORCH_BUILD_VERSION, as a distribution's patched source does not"
        )
    commands = [place.build / "build.ninja", *place.build.glob("CMakeFiles/rules.ninja")]
    text = "".join(map(text_of, commands))
    if plan.wants("USE_DISTRIBUTED") and _LIBUV not in text:
        raise BuildError(
            f"no command in build.ninja defines {_LIBUV}, so this torch would have no libuv, and"
            " torchrun could not run: use the TensorPipe of the tree, with USE_TENSORPIPE and"
            " USE_DISTRIBUTED on and no USE_SYSTEM_LIBS or USE_SYSTEM_TENSORPIPE"
        )
    made = sorted(set(_CODE.findall(text)))
    if plan.cuda is not None and made != plan.code:
        raise BuildError(
            f"nvcc would make code for {', '.join(made) or 'nothing'}, and pytorch_archs declares"
            f" {', '.join(plan.code)}"
        )


def compile_all(plan: Plan, place: Place, run: Programs) -> None:
    """Have everything compiled that ninja knows of; where memory runs out, half as many go on."""
    number = plan.jobs(len(os.sched_getaffinity(0)))
    label = "stand-in" if is_stand_in(place.source) else "%W left"
    while True:
        words = ["ninja", "-C", str(place.build), "-j", str(number)]
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
    words = [str(place.tools / "bin/python"), "-m", "build", "--wheel", "--no-isolation"]
    words += ["-Cbuild-dir=build"] if is_scikit(place.source) else []
    words += ["--outdir", str(place.made), str(place.source)]
    number = plan.jobs(len(os.sched_getaffinity(0)))
    run.run(words, what="making the wheel", MAX_JOBS=str(number))
    found = [path.name for path in place.made.glob("*.whl")]
    if len(found) != 1 or not found[0].startswith(f"torch-{plan.version}-"):
        raise BuildError(
            f"the build left {', '.join(found) or 'no wheel'}, and one of torch {plan.version} is"
            " declared: does the tree take PYTORCH_BUILD_VERSION?"
        )
    remove(place.wheels)
    sync(place.root)
    place.made.rename(place.wheels)
