"""What a build does, step by step. What an earlier one finished is left as it is."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from .plan import MIB_PER_FLASH_JOB, SAYS, BuildError, Plan

STAND_IN = "STAND-IN"
"""A file of this name says that a tree is none of PyTorch's, but one of our rehearsals."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SINCE = "since boot "
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


class CommitError(BuildError):
    """What is declared is no commit of the repository: to fetch once more would not help."""


def say(text: str) -> None:
    """Print a line of our own into the journal; who follows the build shows it."""
    print(f"{SAYS}{text}", flush=True)


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


class Build:
    """A build in its folder, and its steps.

    + source: the tree; fetched: holds its commit, once all of it is there and on disk
    + configured: in CMake's folder, and holds the plan's fingerprint and the boot of the machine
    + tools, proof: virtual environments of what builds torch, and of the proof
    + manifest: what the one wheel in `wheels` is: written last, when that is proven
    """

    def __init__(self, plan: Plan, root: Path) -> None:
        self.plan, self.root = plan, root
        self.source, self.fetched = root / "source", root / "fetched"
        self.build = self.source / "build"
        self.configured = self.build / ".pyinfra-gpu-configured"
        self.tools, self.proof = root / "tools", root / "proof"
        self.wheels, self.manifest = root / "wheels", root / "wheel.json"
        self.boot = text_of(_BOOT_ID)

    @property
    def is_stand_in(self) -> bool:
        """Whether the tree says of itself that it is a rehearsal's."""
        return (self.source / STAND_IN).exists()

    @property
    def is_scikit(self) -> bool:
        """Whether scikit-build-core builds the tree; else setuptools does.

        PyTorch 2.14 and newer have a setup.py still, which only forwards: pyproject.toml counts.
        """
        project = text_of(self.source / "pyproject.toml")
        backend = re.search(r"^build-backend\s*=\s*[\"']([\w.]+)", project, re.M)
        plain = "setuptools" if (self.source / "setup.py").exists() else "none"
        name = backend[1] if backend else plain
        if not name.startswith(("setuptools", "scikit_build_core")):
            raise BuildError(
                f"the source names the build backend {name}, and this builds trees of setuptools"
                " and of scikit-build-core: is it PyTorch at all?"
            )
        return name.startswith("scikit")

    # -- programs

    @property
    def environment(self) -> dict[str, str]:
        """The variables of all that a build runs; of the owner's own HOME alone."""
        plan = self.plan
        path = [str(self.tools / "bin"), *([f"{plan.cuda}/bin"] if plan.cuda else [])]
        launchers = ("C", "CXX", *(["CUDA"] if plan.cuda else []))
        made = {
            "PATH": ":".join([*path, "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]),
            "HOME": os.environ.get("HOME", "/"),
            "LC_ALL": "C.UTF-8",
            "GIT_TERMINAL_PROMPT": "0",
            "CMAKE_GENERATOR": "Ninja",
            "CMAKE_PREFIX_PATH": str(self.tools),
            "PYTHONNOUSERSITE": "1",
            # Both, or the version gets the commit's digits behind it.
            "PYTORCH_BUILD_VERSION": plan.version,
            "PYTORCH_BUILD_NUMBER": "1",
            **plan.settings,
            "CCACHE_DIR": str(self.root / "ccache"),
            "CCACHE_MAXSIZE": "30G",
            # In a first build most files are not in the cache: without this each would be
            # preprocessed twice. The compiler's own list of headers serves as well.
            "CCACHE_DEPEND": "1",
            **{f"CMAKE_{each}_COMPILER_LAUNCHER": "ccache" for each in launchers},
        }
        if plan.compiler is not None:
            compiler, second = plan.compiler
            made |= {"CC": compiler, "CXX": second, "CUDAHOSTCXX": second}
        if plan.cuda is not None:
            # Newer trees count these files apart; older ones meet the limit of memory instead.
            flash = str(max(1, plan.memory_mib // MIB_PER_FLASH_JOB))
            made |= {"CUDA_HOME": plan.cuda, "CUDACXX": f"{plan.cuda}/bin/nvcc"}
            made |= {"TORCH_CUDA_ARCH_LIST": ";".join(plan.archs)}
            made |= {"FLASH_ATTENTION_MAX_JOBS": flash}
        return made

    def tried(self, words: Sequence[str], **more: str) -> tuple[int, list[str]]:
        """Run a program in the tree; return its exit status and the last lines that it printed.

        + more: variables beside those of all programs

        All that it prints goes to the journal.
        """
        print(f"+ {shlex.join(words)}", flush=True)
        kept: deque[str] = deque(maxlen=_KEPT)
        folder = self.source if self.source.exists() else self.root
        try:
            running = subprocess.Popen(
                [*words], cwd=folder, env={**self.environment, **more}, text=True, errors="replace",
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        except OSError as error:
            raise BuildError(f"{words[0]} cannot be run: {error.strerror}") from error
        with running:
            for line in running.stdout or ():
                print(line.rstrip("\n"), flush=True)
                kept.append(line.rstrip("\n"))
        return running.returncode, [*kept]

    def run(self, what: str, *words: str, **more: str) -> list[str]:
        """Run a program, as `tried` does, and raise BuildError where it fails.

        + what: what it does, for the sentence, e.g. "configuring"
        """
        status, lines = self.tried(words, **more)
        if status != 0:
            raise failure(what, status, lines)
        return lines

    def sync(self) -> None:
        """Have everything on the file system of the build on disk."""
        subprocess.run(["sync", "-f", str(self.root)], check=False)

    # -- the source

    def fetch(self) -> None:
        """Have the commit in `source`, complete with its submodules. What was cut off goes on.

        PyTorch itself only looks whether any of six files of the submodules is there.
        """
        since, known = f"{_SINCE}{self.boot}", text_of(self.fetched)
        if known.startswith(_SINCE) and known != since:
            remove(self.source)  # what a power cut leaves may be empty, whatever its time says
        if known != self.plan.commit:
            write_whole(self.fetched, since)
        try:
            self._fetch()
        except CommitError:
            raise
        except BuildError:
            if self.tried(["git", "ls-remote", "--quiet", self.plan.git, "HEAD"])[0] != 0:
                raise  # the network was cut: what came stays
            remove(self.source)  # git cannot go on with what a kill left half cloned
            self._fetch()
        self.sync()
        write_whole(self.fetched, self.plan.commit)

    def _git(self, what: str, *words: str) -> None:
        self.run(what, "git", "-C", str(self.source), *words)

    def _fetch(self) -> None:
        """Have what is missing fetched, and what was changed put back; files of a build stay."""
        tree, url = self.source, self.plan.git
        if not (tree / ".git").exists():
            remove(tree)
            self.run("making a repository", "git", "init", "--quiet", str(tree))
        for lock in [*(tree / ".git").rglob("*.lock")]:  # of a killed git: no other is at work
            lock.unlink()
        # Relative addresses of submodules count from the remote's.
        self._git("naming the repository", "config", "remote.origin.url", url)
        self._fetch_commit()
        self._git("checking out", "checkout", "--quiet", "--force", "--detach", self.plan.commit)
        if not (tree / ".gitmodules").exists():
            return
        # Else git takes submodules from no path: a tree must not choose it.
        local = ("-c", "protocol.file.allow=always") if url.startswith("file:") else ()
        update = ("submodule", "--quiet", "update", "--init", "--recursive", "--force")
        for words in (("submodule", "--quiet", "sync", "--recursive"), (*local, *update)):
            self._git("fetching the submodules", *words)

    def _fetch_commit(self) -> None:
        """Have a commit: it alone where the server hands it out, else every branch and tag."""
        url, commit = self.plan.git, self.plan.commit
        git = ["git", "-C", str(self.source)]
        meant = [*git, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]
        if self.tried(meant)[0] != 0:
            alone = [*git, "fetch", "--quiet", "--no-tags", "--depth=1", "origin", commit]
            if self.tried(alone)[0] != 0:
                every = ("+refs/heads/*:refs/pyinfra-gpu/*", "+refs/tags/*:refs/tags/*")
                self._git(f"fetching {url}", "fetch", "--quiet", "origin", *every)
        found = self.tried(meant)[1][-1:]
        if found != [commit]:  # of an annotated tag's own name, git takes its commit
            tag = f": it names a tag, which may be moved, of {found[0]}" if found else ""
            raise CommitError(
                f"{url} has no commit {commit}{tag}: set pytorch_commit to what"
                f" `git ls-remote {url}` prints for a branch, or for a tag with ^{{}} behind it"
            )

    # -- what builds it

    def make_environment(self, folder: Path, what: str, *wanted: str) -> None:
        """Make a virtual environment of the declared Python with requirements, or wheels."""
        remove(folder)
        options = ("--no-config", "--cache-dir", self.plan.cache)
        make = (self.plan.uv, "venv", "--quiet", "--no-managed-python", *options)
        self.run(what, *make, "--python", self.plan.python, str(folder))
        self._install(folder, what, *wanted)

    def _install(self, folder: Path, what: str, *wanted: str) -> None:
        words = [self.plan.uv, "pip", "install", "--no-config", "--cache-dir", self.plan.cache]
        words += ["--python", f"{folder}/bin/python", *self.plan.sources, *wanted]
        self.run(what, *words)

    def install_tools(self) -> None:
        """Make a virtual environment with what builds torch."""
        remove(self.configured)  # from here on nothing is
        more, what = self.source / "requirements-build.txt", "installing what builds torch"
        self.make_environment(self.tools, what, *self.plan.tools)
        asks = self.run(what, str(self.tools / "bin/python"), "-c", _REQUIRES, str(self.source))
        wanted = [each for each in asks if each]
        wanted += ["--requirement", str(more)] if more.exists() else []
        if wanted:
            self._install(self.tools, what, *wanted)

    # -- configuring and compiling

    @property
    def is_configured(self) -> bool:
        """Whether CMake's folder is of this plan, and of this boot of the machine.

        What a power cut leaves may be empty or half, whatever its time says, and ninja would link
        it. What is compiled is in ccache, which compares a digest before it gives anything.
        """
        return text_of(self.configured) == f"{self.plan.fingerprint} {self.boot}"

    def configure(self) -> None:
        """Have a build folder made by this very plan, as it is declared.

        CMake keeps what it once found, and clones NCCL only where nothing is at its place, be it
        half of it. So it begins with the tree as it was fetched.
        """
        inner = ("submodule", "--quiet", "foreach", "--recursive", f"git {' '.join(_CLEAN)}")
        for clean in (_CLEAN, inner):
            self._git("cleaning the checkout", *clean)
        python = str(self.tools / "bin/python")
        words = [python, "setup.py", "build", "--cmake-only"]
        if self.is_scikit:
            # It cannot configure alone; what it would call is CMake all the same.
            words = ["cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
            words += [f"-D{name}={value}" for name, value in self.plan.settings.items()]
            words += [f"-DPython_EXECUTABLE={python}"]
        lines = self.run("configuring", *words)
        if not (self.build / "build.ninja").exists():
            raise BuildError(
                "configuring ended well and left no build/build.ninja: the tree was not configured"
                " for ninja, with which it is built here"
            )
        self.check("\n".join(lines))
        write_whole(self.configured, f"{self.plan.fingerprint} {self.boot}")

    def check(self, said: str) -> None:
        """Raise BuildError where hours would be spent on another build than the declared one.

        + said: what configuring printed

        CMake's summary cannot prove libuv or the architectures: with a system TensorPipe it says
        "distributed 1, tensorpipe 1", and not one file is compiled with TORCH_USE_LIBUV.
        """
        plan, version = self.plan, _VERSION.search(said)
        commands = [self.build / "build.ninja", *self.build.glob("CMakeFiles/rules.ninja")]
        text = "".join(map(text_of, commands))
        made, found = sorted(set(_CODE.findall(text))), version[1] if version else plan.version
        for wrong, sentence in (
            (
                self.is_stand_in and not plan.rehearsal,
                "the source calls itself a stand-in for rehearsals, and this host is declared as a"
                " real one: set pytorch_git_url to PyTorch's repository, or rehearsal = True",
            ),
            (
                found != plan.version,
                f"the tree would build torch {found}, and {plan.version} is declared: it does not"
                " take PYTORCH_BUILD_VERSION, as a distribution's patched source does not",
            ),
            (
                plan.wants("USE_DISTRIBUTED") and _LIBUV not in text,
                f"no command in build.ninja defines {_LIBUV}, so this torch would have no libuv,"
                " and torchrun could not run: use the TensorPipe of the tree, with USE_TENSORPIPE"
                " and USE_DISTRIBUTED on and no USE_SYSTEM_LIBS or USE_SYSTEM_TENSORPIPE",
            ),
            (
                plan.cuda is not None and made != plan.code,
                f"nvcc would make code for {', '.join(made) or 'nothing'}, and pytorch_archs"
                f" declares {', '.join(plan.code)}",
            ),
        ):
            if wrong:
                raise BuildError(sentence)

    def compile_all(self) -> None:
        """Have everything compiled that ninja knows of; where memory runs out, half as many go on.

        The number of compilers is counted anew each time: the limit may have been raised.
        """
        number = self.plan.jobs(len(os.sched_getaffinity(0)))
        label = "stand-in" if self.is_stand_in else "%W left"
        while True:
            words = ["ninja", "-C", str(self.build), "-j", str(number)]
            status, lines = self.tried(words, NINJA_STATUS=f"[%f/%t] {label}, ")
            if status == 0:
                return
            if not any(_KILLED.search(line) for line in lines):
                raise failure("compiling", status, lines)
            if number == 1:
                raise BuildError(
                    f"one compiler alone needs more than the {self.plan.memory_mib} MiB that this"
                    " build may use: raise pytorch_build_memory_gib, or build on a host with more"
                    " memory"
                )
            number //= 2
            say(f"memory ran out: the build goes on with {number} compilers side by side")

    def make_wheel(self) -> None:
        """Have exactly one wheel in the folder of wheels, with the declared name."""
        remove(self.manifest)
        remove(self.wheels)
        words = [str(self.tools / "bin/python"), "-m", "build", "--wheel", "--no-isolation"]
        words += ["-Cbuild-dir=build"] if self.is_scikit else []
        words += ["--outdir", str(self.wheels), str(self.source)]
        number = self.plan.jobs(len(os.sched_getaffinity(0)))
        self.run("making the wheel", *words, MAX_JOBS=str(number))
        found = [path.name for path in self.wheels.glob("*.whl")]
        if len(found) != 1 or not found[0].startswith(f"torch-{self.plan.version}-"):
            raise BuildError(
                f"the build left {', '.join(found) or 'no wheel'}, and one of torch"
                f" {self.plan.version} is declared: does the tree take PYTORCH_BUILD_VERSION?"
            )
