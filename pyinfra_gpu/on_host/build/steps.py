"""What a build of torch is, and does: fetch, install tools, configure, check, compile, prove.

A step leaves a mark when all of it is on disk, and takes the mark away before it begins again:
what a kill or a power cut left half is thrown away. What was compiled is in ccache.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

SAYS = "pyinfra-gpu: "
"""Begins each line of the journal in which the program says something itself."""

FAILED = "failed in "
"""Begins what it says last where it failed; the first error is in the lines behind it."""

PRINTED = "| "
"""Begins each of these lines."""

BUILDING = "building"
"""A file in the folder, locked by the program while it is at work: which build, which phase."""

MIB_PER_JOB = 2048
MIB_PER_CUDA_JOB = 4096
MIB_PER_FLASH_JOB = 6144
"""flash-attention's files take up to 5.3 GiB each (pytorch#130443)."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_KEPT = 100_000
"""Lines that are kept of what a program printed, to find its first error in."""

_LINES = 12  # of them, from the first error on
_ERROR = re.compile(
    r"(?i)(^|[\s:\]])(fatal error|error|undefined reference|no space left|cannot find"
    r"|could not find|fatal)\b"
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
_SCIKIT = re.compile(r"^build-backend\s*=\s*[\"']scikit_build_core", re.M)
_REQUIRES = """\
import build, sys
print(*build.ProjectBuilder(sys.argv[1]).build_system_requires, sep="\\n")
"""


class BuildError(Exception):
    """A build stopped: what was found, what was expected, what helps, in one sentence.

    + lines: of what a program printed, the first error first
    """

    def __init__(self, sentence: str, lines: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.sentence, self.lines = sentence, tuple(lines)


@dataclass(frozen=True)
class Plan:
    """What is to be built: the controller writes it into FOLDER/plan.json."""

    fingerprint: str  # of all that is declared for it; another one is another build
    git: str
    commit: str
    version: str  # that the wheel is to have, e.g. "2.14.1+cu130"
    settings: Mapping[str, str]  # CMake's options: declared, or else found by chance
    archs: Sequence[str]  # compute capabilities, e.g. ["12.0"]; empty without CUDA
    cuda: str | None  # the toolkit's folder
    compilers: Sequence[str]  # of C and of C++; empty for the host's own
    venv: Sequence[str]  # uv's command that makes an environment of the wheel's Python
    install: Sequence[str]  # uv's command that installs into one
    tools: Sequence[str]  # requirements of the build beside the tree's own, with their versions
    memory_mib: int  # that the build may use
    rehearsal: bool  # what is built is the lab's stand-in, which has nothing of PyTorch

    @property
    def text(self) -> str:
        """The file's text."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Return the plan in a file. Raises BuildError where it cannot be read."""
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{field.name: known[field.name] for field in fields(cls)})
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise BuildError(f"{path} cannot be read ({error}): run the deploy again") from error

    @property
    def distributed(self) -> bool:
        """Whether torch is to have a store, which libuv serves."""
        off = ("", "0", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND")
        return self.settings.get("USE_DISTRIBUTED", "").upper() not in off

    @property
    def code(self) -> list[str]:
        """The declared architectures as nvcc names them, e.g. ["sm_120"]."""
        return sorted(f"sm_{arch.replace('.', '')}" for arch in self.archs)


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


def remove(folder: Path) -> None:
    """Remove a folder, where there is one. Raises OSError where it cannot."""
    if folder.exists():
        shutil.rmtree(folder)


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
    shown = lines[next(errors, max(len(lines) - _LINES, 0)) :][:_LINES]
    return BuildError(f"{what} failed" if shown else f"{what} ended with status {status}", shown)


class Build:
    """A build in its folder, and its steps.

    + source: the tree; fetched: is there while the tree is a whole checkout, and on disk
    + configured: in CMake's folder: the plan's fingerprint and the boot of the machine
    + tools: a virtual environment with what builds torch
    + manifest: what the one wheel in `wheels` is: written last, when that is proven
    """

    def __init__(self, plan: Plan, root: Path) -> None:
        self.plan, self.root = plan, root
        self.source, self.fetched, self.tools = root / "source", root / "fetched", root / "tools"
        self.build = self.source / "build"
        self.configured = self.build / ".pyinfra-gpu-configured"
        self.wheels, self.manifest = root / "wheels", root / "wheel.json"
        self.current = f"{plan.fingerprint} {text_of(_BOOT_ID)}"

    @property
    def is_scikit(self) -> bool:
        """Whether scikit-build-core builds the tree; else setuptools does.

        PyTorch 2.14 and newer have a setup.py still, which only forwards: pyproject.toml counts.
        """
        return _SCIKIT.search(text_of(self.source / "pyproject.toml")) is not None

    @property
    def environment(self) -> dict[str, str]:
        """The variables of all that a build runs; of the owner's own HOME alone."""
        plan = self.plan
        made = {
            "PATH": f"{self.tools}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": os.environ.get("HOME", "/"),
            "LC_ALL": "C.UTF-8",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CEILING_DIRECTORIES": str(self.root),  # a repository above is none of ours
            "PYTHONNOUSERSITE": "1",
            # Both, or the version gets the commit's digits behind it.
            "PYTORCH_BUILD_VERSION": plan.version,
            "PYTORCH_BUILD_NUMBER": "1",
            "CMAKE_GENERATOR": "Ninja",
            "CMAKE_PREFIX_PATH": str(self.tools),
            "CMAKE_C_COMPILER_LAUNCHER": "ccache",
            "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
            "CCACHE_DIR": str(self.root / "ccache"),
            "CCACHE_MAXSIZE": "30G",
            # In a first build most files are not in the cache: without this each would be
            # preprocessed twice. The compiler's own list of headers serves as well.
            "CCACHE_DEPEND": "1",
            **plan.settings,
        }
        if plan.compilers:
            made["CC"], made["CXX"] = plan.compilers
            made["CUDAHOSTCXX"] = made["CXX"]
        if plan.cuda is not None:
            made |= {
                "PATH": f"{plan.cuda}/bin:{made['PATH']}",
                "CUDA_HOME": plan.cuda,
                "CUDACXX": f"{plan.cuda}/bin/nvcc",
                "CMAKE_CUDA_COMPILER_LAUNCHER": "ccache",
                "TORCH_CUDA_ARCH_LIST": ";".join(plan.archs),
                # Newer trees count these files apart; older ones meet the limit of memory instead.
                "FLASH_ATTENTION_MAX_JOBS": str(max(1, plan.memory_mib // MIB_PER_FLASH_JOB)),
            }
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

    def run(self, what: str, *words: str) -> list[str]:
        """Run a program, as `tried` does, and raise BuildError where it fails.

        + what: what it does, for the sentence, e.g. "configuring"
        """
        status, lines = self.tried(words)
        if status != 0:
            raise failure(what, status, lines)
        return lines

    def sync(self) -> None:
        """Have everything on the file system of the build on disk."""
        subprocess.run(["sync", "-f", str(self.root)], check=False)

    def fetch(self) -> None:
        """Have the commit in `source`, with all its submodules; files of a build stay.

        PyTorch itself only looks whether any of six files of the submodules is there.
        """
        tree, url = self.source, self.plan.git
        if not self.fetched.exists():
            remove(tree)
            self.run("making a repository", "git", "init", "--quiet", str(tree))
        self.fetched.unlink(missing_ok=True)
        # Relative addresses of submodules count from the remote's.
        self.run("naming the repository", "git", "config", "remote.origin.url", url)
        self._check_out()
        if (tree / ".gitmodules").exists():
            # Else git takes submodules from no path: a tree must not choose it.
            local = ["-c", "protocol.file.allow=always"] if url.startswith("file:") else []
            update = ("submodule", "--quiet", "update", "--init", "--recursive", "--force")
            for words in (["submodule", "--quiet", "sync", "--recursive"], [*local, *update]):
                self.run("fetching the submodules", "git", *words)
        self.sync()
        self.fetched.touch()

    def _check_out(self) -> None:
        """Check the commit out: fetched alone if the server has it so, else with all branches."""
        url, commit = self.plan.git, self.plan.commit
        meant = ["git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]
        if self.tried(meant)[0] != 0:
            alone = ["git", "fetch", "--quiet", "--no-tags", "--depth=1", "origin", commit]
            if self.tried(alone)[0] != 0:
                every = ("+refs/heads/*:refs/pyinfra-gpu/*", "+refs/tags/*:refs/tags/*")
                self.run(f"fetching {url}", "git", "fetch", "--quiet", "origin", *every)
        if self.tried(meant)[1] != [commit]:  # git takes a tag's own name for its commit
            raise BuildError(
                f"{url} has no commit {commit}, or it names a tag, which may be moved: set"
                f" pytorch_commit to what `git ls-remote {url}` prints for a branch, or for a tag"
                " with ^{} behind it"
            )
        self.run("checking out", "git", "checkout", "--quiet", "--force", "--detach", commit)

    def environment_with(self, folder: Path, what: str, *wanted: str) -> None:
        """Make a virtual environment of the declared Python with requirements, or wheels."""
        self.run(what, *self.plan.venv, str(folder))
        self.run(what, *self.plan.install, "--python", f"{folder}/bin/python", *wanted)

    def install_tools(self) -> None:
        """Have CMake, ninja and what the tree asks for in an environment of their own."""
        self.configured.unlink(missing_ok=True)  # from here on nothing is
        what, python = "installing what builds torch", f"{self.tools}/bin/python"
        self.environment_with(self.tools, what, *self.plan.tools)
        asks = self.run(what, python, "-c", _REQUIRES, str(self.source))
        self.run(what, *self.plan.install, "--python", python, *asks)

    def configure(self) -> None:
        """Have a build folder made by this very plan, from the tree as it was fetched.

        CMake keeps what it once found, and clones NCCL only where nothing is at its place.
        """
        clean = ("clean", "--quiet", "-ffdx")
        inner = ("submodule", "--quiet", "foreach", "--recursive", f"git {' '.join(clean)}")
        for words in (clean, inner):
            self.run("cleaning the checkout", "git", *words)
        python = f"{self.tools}/bin/python"
        configure = [python, "setup.py", "build", "--cmake-only"]
        if self.is_scikit:
            # It cannot configure alone; what it would call is CMake all the same.
            configure = ["cmake", "-S", ".", "-B", "build", "-DCMAKE_BUILD_TYPE=Release"]
            configure += [f"-D{name}={value}" for name, value in self.plan.settings.items()]
            configure += [f"-DPython_EXECUTABLE={python}"]
        self.check("\n".join(self.run("configuring", *configure)))
        write_whole(self.configured, self.current)

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
                found != plan.version,
                f"the tree would build torch {found}, and {plan.version} is declared: it does not"
                " take PYTORCH_BUILD_VERSION, as a distribution's patched source does not",
            ),
            (
                plan.distributed and _LIBUV not in text,
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
        """Have ninja compile what is missing, and one wheel made by the tree's own backend.

        Where memory runs out half as many compilers go on. Their number is counted anew each time:
        the limit may have been raised.
        """
        plan, each = self.plan, MIB_PER_JOB if self.plan.cuda is None else MIB_PER_CUDA_JOB
        number = max(1, min(len(os.sched_getaffinity(0)), plan.memory_mib // each))
        words = [f"{self.tools}/bin/python", "-m", "build", "--wheel", "--no-isolation"]
        words += ["-Cbuild-dir=build"] if self.is_scikit else []
        words += ["--outdir", str(self.wheels), str(self.source)]
        self.manifest.unlink(missing_ok=True)
        remove(self.wheels)
        while True:
            jobs = dict.fromkeys(("MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL"), str(number))
            status, lines = self.tried(words, NINJA_STATUS="[%f/%t] %W left, ", **jobs)
            if status == 0:
                break
            if not any(map(_KILLED.search, lines)):
                raise failure("compiling", status, lines)
            if number == 1:
                raise BuildError(
                    f"one compiler alone needs more than the {plan.memory_mib} MiB that this build"
                    " may use: raise pytorch_build_memory_gib, or build on a host with more memory"
                )
            number //= 2
            say(f"memory ran out: the build goes on with {number} compilers side by side")
        found = [path.name for path in self.wheels.glob("*.whl")]
        if len(found) != 1 or not found[0].startswith(f"torch-{plan.version}-"):
            raise BuildError(
                f"the build left {', '.join(found) or 'no wheel'}, and one of torch {plan.version}"
                " is declared: does the tree take PYTORCH_BUILD_VERSION?"
            )

    def is_proven(self) -> bool:
        """Tell whether the wheel of this plan lies there as its manifest says."""
        try:
            known = json.loads(text_of(self.manifest))
            whole = digest(self.wheels / str(known["file"])) == known["sha256"]
            return bool(whole and known["fingerprint"] == self.plan.fingerprint)
        except (OSError, ValueError, LookupError, TypeError):
            return False


def build(folder: Path, prove: Callable[[Build], None]) -> int:
    """Build what the plan in a folder says; return 0 where the wheel is there and proven.

    + prove: proves the wheel, and writes its manifest

    Why it failed is what it says last.
    """
    say(phase := "plan")
    try:
        of = Build(Plan.read(folder / "plan.json"), folder)
        with os.fdopen(os.open(folder / BUILDING, os.O_WRONLY | os.O_CREAT, 0o644), "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if of.is_proven():
                return 0
            if shutil.which("ccache", path=of.environment["PATH"]) is None:
                raise BuildError("ccache is missing, without which nothing is built: install it")
            steps: dict[str, Callable[[], None]] = {
                "fetch": of.fetch,
                "requirements": of.install_tools,
                "configure": of.configure,
                "compile": of.compile_all,
                "prove": lambda: prove(of),
            }
            for phase, work in steps.items():
                if phase in ("requirements", "configure") and text_of(of.configured) == of.current:
                    continue
                # In place, always as long: a reader sees the one phase or the next.
                os.pwrite(held.fileno(), f"{of.plan.fingerprint} {phase:<12}\n".encode(), 0)
                say(phase)
                work()
    except Exception as error:  # whatever it is, whoever asks is to hear of it
        if not isinstance(error, BuildError):
            error = BuildError(f"the build cannot go on: {type(error).__name__}: {error}")
        say(f"{FAILED}{phase}: {error.sentence}"[:1000])
        for line in error.lines[:_LINES]:
            say(f"{PRINTED}{line[:400]}")
        return 1
    return 0
