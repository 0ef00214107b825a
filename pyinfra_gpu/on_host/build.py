"""Builds torch from source on one host: `python3 -I build.py run FOLDER`, as the owner.

FOLDER holds `plan.json`, which the controller writes. It runs as a unit of systemd's, whose journal
has all that its programs print. Everything but the source and what ccache has is made again each
time, so that nothing depends on what a kill or a power cut left half. It needs Python 3.9 or newer,
git and ccache, and no package of Python's.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import importlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SAYS = "torch: "
"""Begins each line in which the program says something itself."""

FAILED = "failed in "
"""Begins what it says last where it failed; the first error is in the lines behind it."""

PRINTED = "| "
"""Begins each of these lines."""

BUILDING = "building"
"""A file in the folder, locked by the program while it is at work: which build, which phase."""

SAID = "said"
"""A file in the unit's folder below /run: what the program at work, or the last one, said itself.
There is room there where the disk of the build is full."""

MIB_PER_JOB = 2048
MIB_PER_CUDA_JOB = 4096
MIB_PER_FLASH_JOB = 6144
"""flash-attention's files take up to 5.3 GiB each (pytorch#130443)."""

ANSWER = "pyinfra-gpu-proof "
"""Begins the one line in which the process that imported torch tells what it found."""

UV_THREAD = "pt_tcpstore_uv"

_KEPT = 100_000
"""Lines that are kept of what a program printed, to find its first error in."""

_LINES = 12  # of them, from the first error on
_PROGRESS_S = 60
_OFF = ("", "0", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND")
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
_VERSION = re.compile(r"-- Building version (\S+)\s*$")
_STEP = re.compile(r"\[\d+/\d+\] ")
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
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise BuildError(f"{path} cannot be read ({error}): run the deploy again") from error

    @property
    def distributed(self) -> bool:
        """Whether torch is to have a store, which libuv serves."""
        return self.settings.get("USE_DISTRIBUTED", "").upper() not in _OFF

    @property
    def code(self) -> list[str]:
        """The declared architectures as nvcc names them, e.g. ["sm_120"]."""
        return sorted(f"sm_{arch.replace('.', '')}" for arch in self.archs)


def say(text: str) -> None:
    """Say something to whoever follows the build, and to the journal."""
    print(f"{SAYS}{text}", flush=True)
    said = Path(os.environ["RUNTIME_DIRECTORY"], SAID)
    with said.open("a", encoding="utf-8", errors="replace") as file:
        file.write(f"{SAYS}{text}\n")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    made = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            made.update(chunk)
    return made.hexdigest()


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
    + tools: a virtual environment with what builds torch
    + manifest: what the one wheel in `wheels` is: written last, when that is proven
    """

    def __init__(self, plan: Plan, root: Path) -> None:
        self.plan, self.root = plan, root
        self.source, self.fetched, self.tools = root / "source", root / "fetched", root / "tools"
        self.build = self.source / "build"
        self.wheels, self.manifest = root / "wheels", root / "wheel.json"

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
            "NINJA_STATUS": "[%f/%t] %W left, ",
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

    def tried(
        self, words: Sequence[str], seen: Callable[[str], None] | None = None, **more: str
    ) -> tuple[int, list[str]]:
        """Run a program in the tree; return its exit status and the last lines that it printed.

        + seen: is given each line; what it raises ends the program, with all that it started
        + more: variables beside those of all programs

        All that it prints goes to the journal; of ninja's steps one a minute is said.
        """
        print(f"+ {shlex.join(words)}", flush=True)
        kept: deque[str] = deque(maxlen=_KEPT)
        folder, due = self.source if self.source.exists() else self.root, 0.0
        try:
            running = subprocess.Popen(
                [*words], cwd=folder, env={**self.environment, **more}, text=True, errors="replace",
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise BuildError(f"{words[0]} cannot be run: {error.strerror}") from error
        with running:
            for line in map(str.rstrip, running.stdout or ()):
                print(line, flush=True)
                kept.append(line)
                if _STEP.match(line) and time.monotonic() > due:
                    say(line[:60])
                    due = time.monotonic() + _PROGRESS_S
                try:
                    if seen:
                        seen(line)
                except BaseException:
                    os.killpg(running.pid, signal.SIGKILL)
                    raise
        return running.returncode, [*kept]

    def run(self, what: str, *words: str) -> list[str]:
        """Run a program, as `tried` does, and raise BuildError where it fails.

        + what: what it does, for the sentence, e.g. "checking out"
        """
        status, lines = self.tried(words)
        if status != 0:
            raise failure(what, status, lines)
        return lines

    def fetch(self) -> None:
        """Have the commit in `source`, with all its submodules and nothing else.

        PyTorch itself only looks whether any of six files of the submodules is there.
        """
        tree, url = self.source, self.plan.git
        if not self.fetched.exists():
            if tree.exists():
                shutil.rmtree(tree)
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
        # CMake keeps what it once found, and clones NCCL only where nothing is at its place.
        clean = ("clean", "--quiet", "-ffdx")
        inner = ("submodule", "--quiet", "foreach", "--recursive", f"git {' '.join(clean)}")
        for each in (clean, inner):
            self.run("cleaning the checkout", "git", *each)
        os.sync()
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

    def environment_with(self, folder: Path, what: str, *wanted: str) -> str:
        """Make a virtual environment of the declared Python with requirements, or wheels; return
        its Python.
        """
        python = f"{folder}/bin/python"
        self.run(what, *self.plan.venv, str(folder))
        self.run(what, *self.plan.install, "--python", python, *wanted)
        return python

    def install_tools(self) -> None:
        """Have CMake, ninja and what the tree asks for in an environment of their own."""
        what = "installing what builds torch"
        python = self.environment_with(self.tools, what, *self.plan.tools)
        asks = self.run(what, python, "-c", _REQUIRES, str(self.source))
        self.run(what, *self.plan.install, "--python", python, *asks)

    def check(self, version: str) -> None:
        """Raise BuildError where hours would be spent on another build than the declared one.

        + version: that the tree says it builds

        CMake's summary cannot prove libuv or the architectures: with a system TensorPipe it says
        "distributed 1, tensorpipe 1", and not one file is compiled with TORCH_USE_LIBUV.
        """
        plan, commands = self.plan, [self.build / "build.ninja"]
        commands += self.build.glob("CMakeFiles/rules.ninja")
        text = "".join(each.read_text(encoding="utf-8", errors="replace") for each in commands)
        made = sorted(set(_CODE.findall(text)))
        for wrong, sentence in (
            (
                version != plan.version,
                f"the tree would build torch {version}, and {plan.version} is declared: it does"
                " not take PYTORCH_BUILD_VERSION, as a distribution's patched source does not",
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
        """Have one wheel made by the tree's own backend; it is ended where `check` says so.

        Where memory runs out half as many compilers go on with what is missing.
        """
        plan, each = self.plan, MIB_PER_JOB if self.plan.cuda is None else MIB_PER_CUDA_JOB
        number = max(1, min(len(os.sched_getaffinity(0)), plan.memory_mib // each))
        words = [f"{self.tools}/bin/python", "-m", "build", "--wheel", "--no-isolation"]
        # For scikit-build-core, from 2.14 on; setuptools passes over them.
        words += ["-Cbuild-dir=build"]
        words += [f"-Ccmake.define.{name}={value}" for name, value in plan.settings.items()]
        words += ["--outdir", str(self.wheels), str(self.source)]
        versions, checked = [plan.version], False

        def seen(line: str) -> None:
            nonlocal checked
            if said := _VERSION.match(line):
                versions.append(said[1])
            if line == f"-- Build files have been written to: {self.build}":
                self.check(versions[-1])
                checked = True

        while True:
            jobs = dict.fromkeys(("MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL"), str(number))
            status, lines = self.tried(words, seen, **jobs)
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
            say(f"memory ran out: it goes on with {number} compilers side by side")
        if not checked:
            self.check(versions[-1])
        found = [path.name for path in self.wheels.glob("*.whl")]
        if len(found) != 1 or not found[0].startswith(f"torch-{plan.version}-"):
            raise BuildError(
                f"the build left {', '.join(found) or 'no wheel'}, and one of torch {plan.version}"
                " is declared: does the tree take PYTORCH_BUILD_VERSION?"
            )

    def prove(self) -> None:
        """Install the wheel into an empty environment, try it there, and write its manifest."""
        (wheel,), clean = self.wheels.glob("*.whl"), self.root / "proof"
        what = "installing the wheel in an empty environment"
        python = self.environment_with(clean, what, str(wheel))
        program = str(Path(__file__).resolve())
        lines = self.run("importing the built torch", python, "-I", program, "inside")
        answers = [line[len(ANSWER) :] for line in lines if line.startswith(ANSWER)]
        if not answers:
            raise BuildError("the built torch was imported, and the proof said nothing")
        judge(self.plan, json.loads(answers[-1]))
        document = {
            "fingerprint": self.plan.fingerprint,
            "file": wheel.name,
            "sha256": digest(wheel),
            "size": wheel.stat().st_size,
        }
        shutil.rmtree(clean)
        new = self.root / ".wheel.json.tmp"
        new.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        os.sync()
        new.replace(self.manifest)

    def is_proven(self) -> bool:
        """Tell whether the wheel of this plan lies there as its manifest says."""
        try:
            known = json.loads(self.manifest.read_text(encoding="utf-8"))
            whole = digest(self.wheels / str(known["file"])) == known["sha256"]
            return bool(whole and known["fingerprint"] == self.plan.fingerprint)
        except (OSError, ValueError, LookupError, TypeError):
            return False


def build(folder: Path) -> int:
    """Build what the plan in a folder says; return 0 where the wheel is there and proven.

    Why it failed is what it says last.
    """
    phase = "plan"
    try:
        of = Build(Plan.read(folder / "plan.json"), folder)
        with os.fdopen(os.open(folder / BUILDING, os.O_WRONLY | os.O_CREAT, 0o644), "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if of.is_proven():
                return 0
            if shutil.which("ccache", path=of.environment["PATH"]) is None:
                raise BuildError("ccache is missing, without which nothing is built: install it")
            of.manifest.unlink(missing_ok=True)
            shutil.rmtree(of.wheels, ignore_errors=True)
            steps = {
                "fetch": of.fetch,
                "requirements": of.install_tools,
                "compile": of.compile_all,
                "prove": of.prove,
            }
            for phase, work in steps.items():
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


# -- the proof


def judge(plan: Plan, found: dict[str, Any]) -> None:
    """Raise BuildError where what torch says of itself is not what is declared."""
    for name, wanted in (("version", plan.version), ("git_version", plan.commit)):
        if found[name] != wanted:
            raise BuildError(f"the built torch says its {name} is {found[name]}, not {wanted}")
    if found["unloadable"]:
        path, why = found["unloadable"][0]
        raise BuildError(f"the built torch's library {path} cannot be loaded", (why,))
    if plan.rehearsal:
        return
    made = sorted(arch for arch in found["archs"] if arch.startswith("sm_"))
    if made != plan.code:
        raise BuildError(f"the built torch has code for {made}, and {plan.code} is declared")
    if plan.distributed and found["store"] != [UV_THREAD]:
        why = str(found["store_error"] or f"its threads are {found['store']}")
        raise BuildError("the built torch does not serve its store with libuv", (why,))


def inside() -> int:
    """Print what torch says of itself, as one line of JSON, in an environment that has it."""
    torch = importlib.import_module("torch")
    found: dict[str, Any] = {
        "version": str(torch.__version__),
        "git_version": getattr(torch.version, "git_version", None),
        **libraries(Path(str(torch.__file__)).parent),
        "archs": (),
        "store": (),
        "store_error": None,
    }
    if hasattr(torch, "cuda"):
        found["archs"] = [*torch.cuda.get_arch_list()]
    if hasattr(torch, "distributed") and torch.distributed.is_available():
        found.update(_store())
    print(f"{ANSWER}{json.dumps(found)}")
    return 0


def libraries(folder: Path) -> dict[str, Any]:
    """Load every library with all of its symbols resolved, as a program would in the end."""
    paths, unloadable = [path for path in folder.rglob("*.so*") if path.is_file()], []
    for path in sorted(paths):
        try:
            ctypes.CDLL(str(path), mode=os.RTLD_NOW)
        except OSError as error:
            unloadable.append([str(path.relative_to(folder)), str(error)[:300]])
    return {"libraries": len(paths), "unloadable": unloadable}


def _store() -> dict[str, Any]:
    """Serve a store that asks for libuv, and look at the name of the thread that serves it."""
    distributed = importlib.import_module("torch._C._distributed_c10d")
    try:
        store = distributed.TCPStore("127.0.0.1", 0, 1, True, use_libuv=True)
        store.set("key", "value")
        store.get("key")
    except RuntimeError as error:
        return {"store_error": str(error).strip().splitlines()[0][:300]}
    threads = {task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")}
    return {"store": sorted(name for name in threads if name.startswith("pt_tcpstore"))}


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(inside() if sys.argv[1:] == ["inside"] else build(Path(sys.argv[2])))
