"""The program that builds torch on a host: what it reads, checks, counts and refuses."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyinfra_gpu.on_host import build as steps
from pyinfra_gpu.on_host import program
from pyinfra_gpu.on_host.build import SAYS, Build, BuildError, Plan, failure

COMMIT = "ab" * 20
PLAN = Plan(
    fingerprint="f" * 64,
    git="https://example.org/pytorch",
    commit=COMMIT,
    version="2.14.1+cu130",
    settings={"USE_CUDA": "1", "USE_DISTRIBUTED": "1", "USE_TENSORPIPE": "1", "USE_NUMA": "0"},
    archs=("9.0", "12.0"),
    cuda="/usr/local/cuda-13.0",
    compilers=(),
    venv=(),
    install=(),
    tools=(),
    memory_mib=32768,
    rehearsal=False,
)
CPU = replace(PLAN, cuda=None, archs=(), settings={**PLAN.settings, "USE_CUDA": "0"})
LIBUV = "  DEFINES = -DTORCH_USE_LIBUV -DUSE_C10D\n"
CODE = "  FLAGS = -gencode arch=compute_90,code=sm_90 -gencode arch=compute_120,code=sm_120\n"


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Build:
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    made = Build(PLAN, tmp_path)
    made.build.mkdir(parents=True)
    return made


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "protocol.file.allow=always"]
    done = subprocess.run(
        ["git", *who, "-C", str(folder), *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


# -- the source: whole or not at all

Damage = Callable[[Path], object]
INNER = "third_party/inner"


@pytest.fixture
def served(tmp_path: Path) -> Build:
    """Return a build from a repository with a submodule: git/outer and git/inner."""
    for name in ("inner", "outer"):
        folder = tmp_path / "git" / name
        folder.mkdir(parents=True)
        git(folder, "init", "--quiet")
        (folder / "file").write_text("x\n")
        if name == "outer":
            git(folder, "submodule", "--quiet", "add", "../inner", INNER)
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", "x")
    (tmp_path / "build").mkdir()
    return declared(Build(PLAN, tmp_path / "build"), git(folder, "rev-parse", "HEAD"))


def origin(build: Build) -> Path:
    return build.root.parent / "git/outer"


def declared(build: Build, commit: str) -> Build:
    plan = replace(build.plan, git=origin(build).as_uri(), commit=commit)
    return Build(plan, build.root)


def fetched(build: Build) -> None:
    for left in (build.build / "CMakeCache.txt", build.source / INNER / "left.o"):
        if left.parent.exists() or build.source.exists():
            left.parent.mkdir(parents=True, exist_ok=True)
            left.touch()
    build.fetch()
    assert not build.build.exists()
    assert build.fetched.exists()
    assert build.plan.commit == git(build.source, "rev-parse", "HEAD")
    assert git(build.source, "status", "--porcelain", "--ignore-submodules=none") == ""
    assert git(build.source, "submodule", "status", "--recursive")[:1] not in ("-", "+", "U")
    assert (build.source / INNER / "file").read_text() == "x\n"


REPAIRED: dict[str, Damage] = {
    "a submodule's file was changed": lambda tree: (tree / INNER / "file").write_text("y\n"),
    "a submodule is missing": lambda tree: shutil.rmtree(tree / INNER),
    "a submodule is at a wrong commit": lambda tree: git(
        tree / INNER, "commit", "--quiet", "--allow-empty", "-m", "y"
    ),
}
FETCHED_ANEW: dict[str, Damage] = {
    "a submodule is half cloned": lambda tree: (
        shutil.rmtree(tree / f".git/modules/{INNER}/objects"),
        (tree / INNER / "file").unlink(),
    ),
    "a git that was killed in it left its lock": lambda tree: (
        (tree / ".git/index.lock").touch(),
        (tree / "file").unlink(),
    ),
    "its own repository is half": lambda tree: shutil.rmtree(tree / ".git/objects"),
}


def test_a_source_that_is_not_the_commit_is_made_so_and_not_built_as_it_is(served: Build) -> None:
    fetched(served)
    mark = served.source / ".git/mark"
    for damages, anew in ((REPAIRED, False), (FETCHED_ANEW, True)):
        for damage in damages.values():
            mark.touch()
            damage(served.source)
            if anew:  # the run that meets it fails, and leaves nothing that counts as fetched
                with pytest.raises(BuildError):
                    served.fetch()
            fetched(served)
            assert mark.exists() is not anew


def test_what_cannot_be_fetched_is_one_sentence_and_counts_as_nothing(served: Build) -> None:
    """`git ls-remote` prints an annotated tag's own name before that of its commit."""
    git(origin(served), "tag", "-a", "-m", "x", "v2")
    tag = git(origin(served), "rev-parse", "v2")
    inner = origin(served).parent / "inner"
    shutil.rmtree(inner)
    subprocess.run(["git", "init", "-q", inner], check=True)
    for asked, sentence in (
        (tag, f"has no commit {tag}, or it names a tag, which may be moved: set pytorch_commit to"),
        ("0" * 39 + "1", r"has no commit 0{39}1, "),
        (served.plan.commit, "^fetching the submodules failed$"),
    ):
        with pytest.raises(BuildError, match=sentence):
            declared(served, asked).fetch()
        assert not served.fetched.exists()


# -- before hours are spent

CHECKED: dict[str, tuple[Plan, str, str, str | None]] = {
    "as it is declared": (PLAN, LIBUV + CODE, PLAN.version, None),
    "as it is declared, without CUDA": (CPU, LIBUV, "", None),
    "no libuv": (PLAN, CODE, "", "no command in build.ninja defines TORCH_USE_LIBUV"),
    "an architecture too many": (
        PLAN, LIBUV + CODE + "  F = -gencode arch=compute_80,code=sm_80\n", "",
        "nvcc would make code for sm_120, sm_80, sm_90, and pytorch_archs declares sm_120, sm_90",
    ),
    "no architecture": (PLAN, LIBUV, "", "nvcc would make code for nothing"),
    "a version of its own": (
        CPU, LIBUV, "2.6.0+debian",
        r"would build torch 2\.6\.0\+debian, and 2\.14\.1\+cu130 is declared: it does not take",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHECKED)
def test_what_is_not_as_declared_ends_the_build_as_it_begins_to_compile(
    build: Build, what: str
) -> None:
    """The backend is a script that says what setup.py and CMake say, and goes on."""
    plan, ninja, version, sentence = CHECKED[what]
    build = Build(plan, build.root)
    (build.build / "build.ninja").write_text(ninja)
    wheel = f"mkdir {build.wheels}; touch {build.wheels}/{WHEEL}"
    said = f"-- Building version {version}\n" if version else ""
    said += f"-- Build files have been written to: {build.build}/third_party/x\n"
    said += f"-- Build files have been written to: {build.build}"
    backend = build.tools / "bin/python"
    backend.parent.mkdir(parents=True)
    ends = wheel if sentence is None else f"sleep 5; touch {build.root}/went-on"
    backend.write_text(f"#!/bin/sh\necho '{said}'\n({ends})\n")
    backend.chmod(0o755)
    if sentence is None:
        build.compile_all()
    else:
        with pytest.raises(BuildError, match=sentence):
            build.compile_all()
        assert not (build.root / "went-on").exists()


def test_everything_is_compiled_through_ccache(build: Build) -> None:
    made = build.environment
    for language in ("C", "CXX", "CUDA"):
        assert made[f"CMAKE_{language}_COMPILER_LAUNCHER"] == "ccache"
    assert made["CCACHE_DIR"] == str(build.root / "ccache")
    assert (made["FLASH_ATTENTION_MAX_JOBS"], made["TORCH_CUDA_ARCH_LIST"]) == ("5", "9.0;12.0")
    assert "CMAKE_CUDA_COMPILER_LAUNCHER" not in Build(CPU, build.root).environment


# -- compiling

KILLED = "g++: fatal error: Killed signal terminated program cc1plus"
FIRST = ["[1/4] a", "[2/4] b", "FAILED: c.o", KILLED, "ninja: build stopped: subcommand failed."]
WHEEL = "torch-2.14.1+cu130-cp312-cp312-linux_x86_64.whl"


def compiled(build: Build, *wheels: str, killed: int = 0) -> list[str]:
    """Compile where memory runs out so often; return how many compilers worked at each time."""
    jobs: list[str] = []

    def tried(words: Sequence[str], seen: object, **given: str) -> tuple[int, list[str]]:
        assert given["MAX_JOBS"] == given["CMAKE_BUILD_PARALLEL_LEVEL"]
        jobs.append(given["MAX_JOBS"])
        if len(jobs) <= killed:
            return 1, FIRST
        build.wheels.mkdir()
        for name in wheels:
            (build.wheels / name).touch()
        return 0, []

    build.tried = tried  # type: ignore[method-assign]
    build.check = lambda version: None  # type: ignore[method-assign]
    build.compile_all()
    return jobs


@pytest.mark.parametrize(
    ("plan", "cores", "jobs"),
    [
        (CPU, 64, ["16"]),
        (CPU, 4, ["4"]),
        (PLAN, 64, ["8"]),
        (CPU, 64, ["16", "8"]),  # memory runs out
        (replace(CPU, memory_mib=128 << 10), 64, ["64"]),  # and then it was raised
        (replace(CPU, memory_mib=1000), 8, ["1"]),
    ],
)
def test_compilers_are_as_many_as_memory_and_cores_allow_and_half_where_memory_runs_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    plan: Plan, cores: int, jobs: list[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores))
    assert compiled(Build(plan, tmp_path), WHEEL, killed=len(jobs) - 1) == jobs
    said = f"{SAYS}memory ran out: it goes on with {jobs[-1]} compilers side by side\n"
    assert capsys.readouterr().out == said * (len(jobs) - 1)


def test_one_compiler_for_which_memory_is_too_little_is_told(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="one compiler alone needs more than the 2048 MiB"):
        compiled(Build(replace(CPU, memory_mib=2048), tmp_path), killed=1)


@pytest.mark.parametrize("wheels", [[], [WHEEL, "torch-2.14.1+cu130-x.whl"], ["torch-2.14.1-x"]])
def test_a_build_that_leaves_another_wheel_than_the_declared_one_has_failed(
    build: Build, wheels: list[str]
) -> None:
    with pytest.raises(BuildError, match=r"and one of torch 2\.14\.1\+cu130 is declared"):
        compiled(build, *wheels)


# -- the first error

ERRORS: dict[str, list[str]] = {
    "x.cc:1:10: fatal error: no.h": [
        *("[1/9] a, some error: of a test", "FAILED: x.o", "/usr/bin/c++ -c x.cc"),
        "x.cc:1:10: fatal error: no.h: No such file or directory",
        *("compilation terminated.", "FAILED: y.o", "y.cc:2:1: error: z"),
    ],
    "CMake Error at CMakeLists.txt:9": [
        *("-- Performing Test C_HAS_AVX_1 - Failed", "-- Looking for x - not found"),
        *("CMake Error at CMakeLists.txt:9 (message):", "  it needs y"),
    ],
    "ImportError: libtorch.so.2.6: cannot open": [
        "Traceback (most recent call last):",
        *('  File "<frozen importlib._bootstrap>", line 1387, in _gcd_import', "  return a()") * 9,
        "ImportError: libtorch.so.2.6: cannot open shared object file",
    ],
}


@pytest.mark.parametrize("first", ERRORS)
def test_the_first_error_is_told_and_neither_its_consequences_nor_what_was_only_tried(
    first: str,
) -> None:
    error = failure("compiling", 1, ERRORS[first])
    assert error.sentence == "compiling failed"
    assert error.lines[0].startswith(first)
    assert failure("configuring", 3, []).sentence == "configuring ended with status 3"


# -- all of it, without a tree

STEPS = ["fetch", "install_tools", "compile_all", "prove"]


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, build: Build) -> list[str]:
    """Do nothing in all steps but note them, as on a host with ccache; return the notes."""
    notes: list[str] = []
    for name in STEPS:
        monkeypatch.setattr(Build, name, lambda build, name=name: notes.append(name))
    monkeypatch.setattr(steps.shutil, "which", lambda *given, **more: "/usr/bin/ccache")
    (build.root / "plan.json").write_text(PLAN.text)
    return notes


def test_a_wheel_that_is_proven_is_not_built_again(build: Build, done: list[str]) -> None:
    wheel = build.wheels / "torch-x.whl"
    known = {"fingerprint": PLAN.fingerprint, "file": wheel.name}
    known["sha256"] = hashlib.sha256(b"x").hexdigest()
    for manifest, again in (
        ({}, True),
        ({**known, "sha256": "0" * 64}, True),
        ({**known, "fingerprint": "e" * 64}, True),
        (known, False),
    ):
        build.wheels.mkdir(exist_ok=True)
        wheel.write_bytes(b"x")
        build.manifest.write_text(json.dumps(manifest))
        done.clear()
        assert steps.build(build.root) == 0
        assert done == STEPS * again
        assert build.manifest.exists() is wheel.exists() is not again


def test_a_build_at_work_can_be_told_from_one_that_ended(
    build: Build, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build.root / steps.BUILDING

    def full(of: Build) -> None:
        with path.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Build, "compile_all", full)
    assert steps.build(build.root) == 1
    assert (path.read_text().split(), done) == ([PLAN.fingerprint, "compile"], STEPS[:2])
    *_, said = (build.root / steps.SAID).read_text().splitlines()
    assert said.startswith(f"{SAYS}failed in compile: the build cannot go on: OSError: ")
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (PLAN.text, "ccache is missing, without which nothing is built: install it"),
        ("", "/plan.json cannot be read"),
        ("[]", "/plan.json cannot be read"),
        ('{"fingerprint": "%s"}' % ("e" * 64), "run the deploy again"),
    ],
)
def test_without_ccache_or_a_plan_nothing_is_built(
    build: Build, done: list[str], monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    monkeypatch.setattr(steps.shutil, "which", lambda *given, **more: None)
    (build.root / "plan.json").write_text(text)
    assert steps.build(build.root) == 1
    (said,) = (build.root / steps.SAID).read_text().splitlines()
    assert done == []
    assert said.startswith(f"{SAYS}failed in plan: ")
    assert why in said


@pytest.mark.parametrize("at_work", [True, False])
def test_who_follows_hears_all_that_the_build_said_until_it_ends(
    tmp_path: Path, at_work: bool
) -> None:
    said = ["torch: compile", "torch: failed in compile: x", "torch: | x.c:1:2: error: odd"]
    folder = tmp_path / "unit"
    folder.mkdir()
    later = f'sleep 1; for line in {{1..3}}; do echo >>{folder}/said "${{!line}}"; done'
    work = subprocess.Popen(["bash", "-c", later, "x", *said])
    if not at_work:
        work.wait()
    pid = work.pid if at_work else 0
    (tmp_path / "systemctl").write_text(f"#!/bin/sh\necho {pid}\n")
    (tmp_path / "systemctl").chmod(0o755)
    words = ["sh", "-c", program("pytorch/follow.sh", "unit.service", "--user")]
    known = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": str(tmp_path)}
    with subprocess.Popen(words, env=known, text=True, stdout=subprocess.PIPE) as following:
        work.wait()
        assert following.communicate()[0].splitlines() == said


# -- the proof

FOUND: dict[str, Any] = {
    "version": PLAN.version, "git_version": COMMIT, "libraries": 12, "unloadable": [],
    "archs": ["sm_90", "sm_120", "compute_120"], "store": ["pt_tcpstore_uv"], "store_error": None,
}  # fmt: skip


def test_a_torch_as_it_is_declared_is_proven() -> None:
    steps.judge(PLAN, FOUND)
    steps.judge(replace(PLAN, rehearsal=True), {**FOUND, "store": [], "archs": []})


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"version": "2.14.1"}, "its version is 2.14.1"),
        ({"git_version": "Unknown"}, "its git_version is Unknown"),
        ({"unloadable": [["lib/libtorch.so", "libcudnn.so.9: cannot open"]]}, "lib/libtorch.so"),
        ({"archs": ["sm_90"]}, r"has code for \['sm_90'\]"),
        ({"store": ["pt_tcpstore"]}, "does not serve its store with libuv"),
        ({"store": [], "store_error": "built without libuv support"}, "its store with libuv"),
    ],
)
def test_a_torch_that_is_not_what_was_declared_is_not_proven(
    wrong: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BuildError, match=sentence):
        steps.judge(PLAN, {**FOUND, **wrong})


def test_a_library_that_lacks_a_symbol_cannot_be_loaded_though_nobody_calls_it(
    tmp_path: Path,
) -> None:
    """As the loader resolves by default, it would be found hours later, by a user."""
    for name, text in (("whole", "int f(void) { return 1; }"), ("lacks", "int g(void); "
                       "int f(void) { return g(); }")):  # fmt: skip
        (tmp_path / f"{name}.c").write_text(text)
        words = ["cc", "-shared", "-fPIC", "-o", f"lib{name}.so.1", f"{name}.c"]
        subprocess.run(words, cwd=tmp_path, check=True)
    assert ctypes.CDLL(str(tmp_path / "liblacks.so.1"), mode=os.RTLD_LAZY)
    code = "from pyinfra_gpu.on_host.build import libraries as l; import json, pathlib; "
    code += "print(json.dumps(l(pathlib.Path.cwd())))"
    known = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=known, capture_output=True, text=True
    )
    reported = json.loads(done.stdout)
    ((path, why),) = reported["unloadable"]
    assert (reported["libraries"], path) == (2, "liblacks.so.1")
    assert "undefined symbol: g" in why
