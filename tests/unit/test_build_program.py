"""The program that builds torch on a host: what it reads, checks, counts and refuses."""

from __future__ import annotations

import ctypes
import fcntl
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

from pyinfra_gpu.on_host import program
from pyinfra_gpu.on_host.build import prove, steps
from pyinfra_gpu.on_host.build.steps import SAYS, Build, BuildError, Plan, failure

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
def build(tmp_path: Path) -> Build:
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
    build.fetch()
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


def test_the_backend_is_what_the_tree_names_though_there_is_a_setup_py(build: Build) -> None:
    (build.source / "setup.py").write_text("")
    for backend, scikit in (("'scikit_build_core.build'", True), ('"setuptools.x"', False)):
        (build.source / "pyproject.toml").write_text(f"[x]\nbuild-backend = {backend}\n")
        assert build.is_scikit is scikit


# -- after configuring

VERSION = "-- Building version 2.14.1+cu130\n"
CHECKED: dict[str, tuple[Plan, str, str, str | None]] = {
    "as it is declared": (PLAN, LIBUV + CODE, VERSION, None),
    "as it is declared, without CUDA": (CPU, LIBUV, "", None),
    "no libuv": (PLAN, CODE, "", "no command in build.ninja defines TORCH_USE_LIBUV"),
    "an architecture too many": (
        PLAN, LIBUV + CODE + "  F = -gencode arch=compute_80,code=sm_80\n", "",
        "nvcc would make code for sm_120, sm_80, sm_90, and pytorch_archs declares sm_120, sm_90",
    ),
    "no architecture": (PLAN, LIBUV, "", "nvcc would make code for nothing"),
    "a version of its own": (
        CPU, LIBUV, "Building wheel torch-2.6.0+debian\n-- Building version 2.6.0+debian\n",
        r"would build torch 2\.6\.0\+debian, and 2\.14\.1\+cu130 is declared: it does not take",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHECKED)
def test_what_is_not_as_declared_is_one_sentence_before_anything_is_compiled(
    build: Build, what: str
) -> None:
    plan, ninja, said, sentence = CHECKED[what]
    (build.build / "build.ninja").write_text(ninja)
    if sentence is None:
        Build(plan, build.root).check(said)
    else:
        with pytest.raises(BuildError, match=sentence):
            Build(plan, build.root).check(said)


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

    def tried(words: Sequence[str], **given: str) -> tuple[int, list[str]]:
        assert given["MAX_JOBS"] == given["CMAKE_BUILD_PARALLEL_LEVEL"]
        jobs.append(given["MAX_JOBS"])
        if len(jobs) <= killed:
            return 1, FIRST
        build.wheels.mkdir()
        for name in wheels:
            (build.wheels / name).touch()
        return 0, []

    build.tried = tried  # type: ignore[method-assign]
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
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores))
    assert compiled(Build(plan, tmp_path), WHEEL, killed=len(jobs) - 1) == jobs
    said = f"{SAYS}memory ran out: the build goes on with {jobs[-1]} compilers side by side\n"
    assert capsys.readouterr().out == said * (len(jobs) - 1)


def test_one_compiler_for_which_memory_is_too_little_is_told(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="one compiler alone needs more than the 2048 MiB"):
        compiled(Build(replace(CPU, memory_mib=2048), tmp_path), killed=1)


@pytest.mark.parametrize("wheels", [[], [WHEEL, "torch-2.14.1+cu130-x.whl"], ["torch-2.14.1-x"]])
def test_a_build_that_leaves_another_wheel_than_the_declared_one_has_failed(
    build: Build, wheels: list[str]
) -> None:
    build.manifest.touch()
    with pytest.raises(BuildError, match=r"and one of torch 2\.14\.1\+cu130 is declared"):
        compiled(build, *wheels)
    assert not build.manifest.exists()


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

STEPS = ("fetch", "install_tools", "configure", "compile_all")
ALL = [*STEPS, "prove"]


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, build: Build) -> list[str]:
    """Do nothing in all steps but note them, as on a host with ccache; return the notes."""
    notes: list[str] = []
    for name in STEPS:
        monkeypatch.setattr(Build, name, lambda build, name=name: notes.append(name))
    monkeypatch.setattr(steps.shutil, "which", lambda *given, **more: "/usr/bin/ccache")
    (build.root / "plan.json").write_text(PLAN.text)
    return notes


def test_what_is_made_for_this_plan_in_this_boot_is_not_made_again(
    build: Build, done: list[str]
) -> None:
    build.wheels.mkdir()
    wheel = build.wheels / "torch-x.whl"
    wheel.write_bytes(b"x")
    known = {"fingerprint": PLAN.fingerprint, "file": wheel.name, "sha256": steps.digest(wheel)}
    for mark, manifest, expected in (
        ("", {}, ALL),
        (f"{PLAN.fingerprint} another boot", {}, ALL),  # what is there may be half
        (build.current.replace("f" * 64, "e" * 64), {}, ALL),
        (build.current, {}, ["fetch", "compile_all", "prove"]),
        ("", {**known, "sha256": "0" * 64}, ALL),
        ("", {**known, "fingerprint": "e" * 64}, ALL),
        ("", known, []),
    ):
        build.configured.write_text(mark)
        build.manifest.write_text(json.dumps(manifest))
        done.clear()
        assert steps.build(build.root, lambda build: done.append("prove")) == 0
        assert done == expected


def test_a_build_at_work_can_be_told_from_one_that_ended(
    build: Build, done: list[str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = build.root / steps.BUILDING

    def full(of: Build) -> None:
        with path.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Build, "configure", full)
    assert steps.build(build.root, lambda build: None) == 1
    assert (path.read_text().split(), done[-1]) == ([PLAN.fingerprint, "configure"], STEPS[1])
    *_, said = capsys.readouterr().out.splitlines()
    assert said.startswith(f"{SAYS}failed in configure: the build cannot go on: OSError: ")
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
    build: Build, done: list[str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], text: str, why: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(steps.shutil, "which", lambda *given, **more: None)
    (build.root / "plan.json").write_text(text)
    assert steps.build(build.root, lambda build: None) == 1
    first, said = capsys.readouterr().out.splitlines()
    assert (first, done) == (f"{SAYS}plan", [])
    assert said.startswith(f"{SAYS}failed in plan: ")
    assert why in said


def test_who_follows_is_told_of_the_last_build_alone_and_of_each_line_once(tmp_path: Path) -> None:
    said = ["plan", "failed in fetch: of the build before", "plan", "compile"]
    said += ["failed in compile: x", "| x.c:1:2: error: odd"]
    lines = [f"{SAYS}{line}" for line in said]
    lines.insert(4, "[1/302] 1:02 left, Building C object x.o")
    (tmp_path / "journal").write_text("".join(f"{each}\n" for each in lines))
    fakes = {
        "sleep": f"echo >>{tmp_path}/slept",
        "systemctl": f"[ ! -e {tmp_path}/slept ] || exit 3",
        # Before it has slept once, the last two lines are not there yet.
        "journalctl": f"[ $1 = --sync ] || if [ -e {tmp_path}/slept ]; then cat {tmp_path}/journal;"
        f" else head -n -2 {tmp_path}/journal; fi",
    }
    for name, text in fakes.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    words = ["sh", "-c", program("build/follow.sh", "unit", "owner")]
    known = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    told = subprocess.run(words, env=known, capture_output=True, text=True).stdout.splitlines()
    shown = ["[1/302] 1:02 left, Building C object x.o", "plan", "compile"]
    assert told == [f"torch: {each}" for each in (*shown, *said[4:])]


# -- the proof

FOUND: dict[str, Any] = {
    "version": PLAN.version, "git_version": COMMIT, "libraries": 12, "unloadable": [],
    "archs": ["sm_90", "sm_120", "compute_120"], "nccl": "2.30.7", "store": ["pt_tcpstore_uv"],
    "store_error": None,
}  # fmt: skip


def test_a_torch_as_it_is_declared_is_proven() -> None:
    proven = prove.judge(PLAN, FOUND)
    assert proven == {
        "libraries": 12, "commit": COMMIT, "store": ["pt_tcpstore_uv"],
        "archs": ["sm_120", "sm_90"], "nccl": "2.30.7",
    }  # fmt: skip
    assert "store" not in prove.judge(replace(PLAN, rehearsal=True), {**FOUND, "store": []})


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
        prove.judge(PLAN, {**FOUND, **wrong})


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
    code = "from pyinfra_gpu.on_host.build.prove import _libraries as l; import json, pathlib; "
    code += "print(json.dumps(l(pathlib.Path.cwd())))"
    known = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=known, capture_output=True, text=True
    )
    told = json.loads(done.stdout)
    ((path, why),) = told["unloadable"]
    assert (told["libraries"], path) == (2, "liblacks.so.1")
    assert "undefined symbol: g" in why
