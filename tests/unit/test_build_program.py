"""The program that builds torch on a host: what it reads, checks, counts and refuses."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from pyinfra_gpu.on_host.build import __main__ as running
from pyinfra_gpu.on_host.build import prove, steps
from pyinfra_gpu.on_host.build.plan import BuildError, Place, Plan, environment
from pyinfra_gpu.on_host.build.steps import Programs, failure

COMMIT = "ab" * 20
PLAN = Plan(
    fingerprint="f" * 64,
    ingredients={},
    git="https://example.org/pytorch",
    commit=COMMIT,
    version="2.14.1+cu130",
    settings={"USE_CUDA": "1", "USE_DISTRIBUTED": "1", "USE_TENSORPIPE": "1", "USE_NUMA": "0"},
    archs=("9.0", "12.0"),
    cuda="/usr/local/cuda-13.0",
    compiler=None,
    python="/opt/x/venv/bin/python",
    uv="/opt/x/tools/bin/uv",
    cache="/opt/x/cache",
    sources=(),
    tools=(),
    memory_mib=32768,
    rehearsal=False,
)
CPU = replace(PLAN, cuda=None, archs=(), settings={**PLAN.settings, "USE_CUDA": "0"})
LIBUV = "  DEFINES = -DTORCH_USE_LIBUV -DUSE_C10D\n"
CODE = "  FLAGS = -gencode arch=compute_90,code=sm_90 -gencode arch=compute_120,code=sm_120\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)  # where the program goes; the tests after it are elsewhere again
    made = Place(tmp_path)
    made.build.mkdir(parents=True)
    return made


def programs(folder: Path) -> Programs:
    return Programs({"PATH": os.environ["PATH"], "HOME": str(folder)})


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "protocol.file.allow=always"]
    done = subprocess.run(
        ["git", *who, "-C", str(folder), *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


# -- the source: whole or not at all

Damage = Callable[[Path], object]
INNER = "third_party/inner"


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a repository that has a submodule: outer and inner."""
    base = tmp_path_factory.mktemp("git")
    for name in ("inner", "outer"):
        folder = base / name
        folder.mkdir()
        git(folder, "init", "--quiet")
        (folder / "file").write_text("x\n")
        if name == "outer":
            git(folder, "submodule", "--quiet", "add", "../inner", INNER)
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", "x")
    return base


def serve(repositories: Path, folder: Path) -> tuple[Place, str, str]:
    """Return a place to build in, and a repository of its own: its URL and commit."""
    outer, place = folder / "git/outer", Place(folder / "build")
    shutil.copytree(repositories, outer.parent, symlinks=True)
    place.root.mkdir()
    return place, outer.as_uri(), git(outer, "rev-parse", "HEAD")


@pytest.fixture
def served(repositories: Path, tmp_path: Path) -> tuple[Place, str, str]:
    return serve(repositories, tmp_path)


def fetched(place: Place, url: str, commit: str) -> None:
    run = programs(place.root)
    steps.fetch(replace(PLAN, git=url, commit=commit), place, run)
    assert steps.text_of(place.fetched) == commit == git(place.source, "rev-parse", "HEAD")
    assert git(place.source, "status", "--porcelain", "--ignore-submodules=none") == ""
    assert git(place.source, "submodule", "status", "--recursive")[:1] not in ("-", "+", "U")


def _elsewhere(tree: Path) -> None:
    git(tree / INNER, "commit", "--quiet", "--allow-empty", "-m", "y")


DAMAGES: dict[str, Damage] = {
    "a submodule's file was changed": lambda tree: (tree / INNER / "file").write_text("y\n"),
    "a submodule is missing": lambda tree: shutil.rmtree(tree / INNER),
    "a submodule is at a wrong commit": _elsewhere,
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


@pytest.mark.parametrize("what", DAMAGES)
def test_a_source_that_is_not_the_commit_is_made_so_and_not_built_as_it_is(
    what: str, served: tuple[Place, str, str]
) -> None:
    place, url, commit = served
    fetched(place, url, commit)
    DAMAGES[what](place.source)
    fetched(place, url, commit)
    assert (place.source / INNER / "file").read_text() == "x\n"


def test_a_tag_that_stands_in_the_place_of_a_commit_is_one_sentence(
    served: tuple[Place, str, str],
) -> None:
    """`git ls-remote` prints an annotated tag's own name before that of its commit."""
    place, url, commit = served
    origin = Path(url.removeprefix("file://"))
    git(origin, "tag", "-a", "-m", "x", "v2")
    tag = git(origin, "rev-parse", "v2")
    with pytest.raises(BuildError, match=f"it names a tag, which may be moved, of {commit}: set"):
        fetched(place, url, tag)
    assert not place.fetched.exists()


def test_a_submodule_whose_commit_is_nowhere_is_one_sentence(
    served: tuple[Place, str, str],
) -> None:
    place, url, commit = served
    origin = Path(url.removeprefix("file://"))
    shutil.rmtree(origin.parent / "inner")
    subprocess.run(["git", "init", "-q", origin.parent / "inner"], check=True)
    with pytest.raises(BuildError, match="fetching the submodules failed") as refused:
        fetched(place, url, commit)
    assert "\n" not in refused.value.lines[0]
    assert not place.fetched.exists()


def test_a_commit_that_the_repository_does_not_have_is_one_sentence(
    served: tuple[Place, str, str],
) -> None:
    place, url, _ = served
    with pytest.raises(BuildError, match=r"has no commit 0{39}1: set pytorch_commit to"):
        fetched(place, url, "0" * 39 + "1")
    assert not place.fetched.exists()


# -- the tree


BACKENDS = {
    '[build-system]\nbuild-backend = "setuptools.build_meta"\n': False,
    "[build-system]\nbuild-backend = 'scikit_build_core.build'\n[project]\n": True,
    "[project]\nname = 'torch'\n": False,  # as trees that have only a setup.py
}


@pytest.mark.parametrize("text", BACKENDS)
def test_the_backend_is_what_the_tree_names(tmp_path: Path, text: str) -> None:
    (tmp_path / "setup.py").write_text("")
    (tmp_path / "pyproject.toml").write_text(text)
    assert steps.is_scikit(tmp_path) == BACKENDS[text]


def test_a_tree_of_another_backend_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[build-system]\nbuild-backend = "hatchling.build"\n')
    with pytest.raises(BuildError, match=r"names the build backend hatchling\.build"):
        steps.is_scikit(tmp_path)


# -- after configuring


def checked(plan: Plan, place: Place, ninja: str, log: str) -> None:
    (place.build / "build.ninja").write_text(ninja)
    steps.check(plan, place, log)


def test_a_build_as_it_is_declared_passes(place: Place) -> None:
    checked(PLAN, place, LIBUV + CODE, "-- Building version 2.14.1+cu130\n")
    checked(CPU, place, LIBUV, "")


WRONG: dict[str, tuple[Plan, str, str, str]] = {
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


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_as_declared_is_one_sentence_before_anything_is_compiled(
    place: Place, what: str
) -> None:
    plan, ninja, log, sentence = WRONG[what]
    with pytest.raises(BuildError, match=sentence):
        checked(plan, place, ninja, log)


def test_a_stand_in_is_built_in_rehearsals_alone(place: Place) -> None:
    (place.source / steps.STAND_IN).write_text("")
    checked(replace(PLAN, rehearsal=True), place, LIBUV + CODE, "")
    with pytest.raises(BuildError, match="calls itself a stand-in for rehearsals"):
        checked(PLAN, place, LIBUV + CODE, "")


# -- how much at a time


@pytest.mark.parametrize(
    ("plan", "cores", "expected"),
    [
        (CPU, 64, 16),
        (CPU, 4, 4),
        (replace(CPU, memory_mib=1000), 8, 1),
        (PLAN, 64, 8),
    ],
)
def test_jobs_follow_memory_and_cores(plan: Plan, cores: int, expected: int) -> None:
    assert plan.jobs(cores) == expected


def test_everything_is_compiled_through_ccache(place: Place) -> None:
    made = environment(PLAN, place)
    for language in ("C", "CXX", "CUDA"):
        assert made[f"CMAKE_{language}_COMPILER_LAUNCHER"] == "ccache"
    assert made["CCACHE_DIR"] == str(place.ccache)
    assert (made["FLASH_ATTENTION_MAX_JOBS"], made["TORCH_CUDA_ARCH_LIST"]) == ("5", "9.0;12.0")
    assert "CMAKE_CUDA_COMPILER_LAUNCHER" not in environment(CPU, place)


# -- compiling


class Ninja(Programs):
    """Answers as ninja would, run after run."""

    def __init__(self, *runs: tuple[int, list[str]]) -> None:
        super().__init__({})
        self.runs, self.jobs = list(runs), list[str]()

    def tried(self, words: Sequence[str], **_: Any) -> tuple[int, list[str]]:
        self.jobs.append(words[-1])
        return self.runs.pop(0)


KILLED = "g++: fatal error: Killed signal terminated program cc1plus"
FIRST = ["[1/4] a", "[2/4] b", "FAILED: c.o", KILLED, "ninja: build stopped: subcommand failed."]


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))


@pytest.mark.usefixtures("cores")
def test_where_memory_runs_out_half_as_many_go_on_and_it_is_said(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Ninja((1, FIRST), (0, []))
    steps.compile_all(CPU, place, run)
    assert run.jobs == ["16", "8"]
    said = capsys.readouterr().out
    assert said == f"{steps.SAYS}memory ran out: the build goes on with 8 compilers side by side\n"


@pytest.mark.usefixtures("cores")
def test_another_limit_of_memory_counts_the_compilers_again(place: Place) -> None:
    run = Ninja((0, []), (1, FIRST), (0, []), (0, []))
    for gib in (4, 64, 128):  # after memory ran out with 64, it was raised
        steps.compile_all(replace(CPU, memory_mib=gib * 1024), place, run)
    assert run.jobs == ["2", "32", "16", "64"]


def test_one_compiler_that_needs_too_much_is_the_end(place: Place) -> None:
    plan = replace(CPU, memory_mib=2048)
    with pytest.raises(BuildError, match="one compiler alone needs more than the 2048 MiB"):
        steps.compile_all(plan, place, Ninja((1, FIRST)))


# -- the first error


def first_error(lines: list[str], what: str = "compiling") -> str:
    error = failure(what, 1, lines)
    return f"{error.sentence}: {error.lines[0]}"


def test_the_first_error_is_told_and_not_its_consequences() -> None:
    lines = [
        *("[1/9] a, some error: of a test", "FAILED: x.o", "/usr/bin/c++ -c x.cc"),
        "x.cc:1:10: fatal error: no.h: No such file or directory",
        *("compilation terminated.", "FAILED: y.o", "y.cc:2:1: error: z"),
    ]
    assert first_error(lines).startswith("compiling failed: x.cc:1:10: fatal error: no.h")


def test_what_cmake_only_tried_is_no_error() -> None:
    tried = ["-- Performing Test C_HAS_AVX_1 - Failed", "-- Looking for x - not found"]
    lines = [*tried, "CMake Error at CMakeLists.txt:9 (message):", "  it needs y"]
    assert first_error(lines).startswith("compiling failed: CMake Error at CMakeLists.txt:9")


def test_of_a_traceback_the_exception_is_told_and_not_the_code_above_it() -> None:
    lines = ["Traceback (most recent call last):"]
    lines += [
        '  File "<frozen importlib._bootstrap>", line 1387, in _gcd_import',
        "  return a()",
    ] * 9
    lines += ["ImportError: libtorch.so.2.6: cannot open shared object file"]
    assert first_error(lines) == f"compiling failed: {lines[-1]}"


def test_the_error_of_a_program_that_says_nothing_is_a_sentence() -> None:
    assert failure("configuring", 3, []).sentence == "configuring ended with status 3"


# -- all of it, without a tree


def state(place: Place) -> dict[str, Any]:
    return dict(json.loads(place.state.read_text()))


@pytest.fixture
def phases(monkeypatch: pytest.MonkeyPatch, place: Place) -> list[str]:
    """Do nothing in all phases but note them, as on a host with ccache; return the notes."""
    done: list[str] = []
    names = ("fetch", "tools", "configure", "compile_all", "make_wheel")
    for module, name in (*((steps, name) for name in names), (prove, "prove")):
        monkeypatch.setattr(module, name, lambda *given, name=name: done.append(name))
    monkeypatch.setattr(running.shutil, "which", lambda *given, **more: "/usr/bin/ccache")
    (place.root / "plan.json").write_text(json.dumps(asdict(PLAN)))
    return done


ALL = ["fetch", "tools", "configure", "compile_all", "make_wheel", "prove"]


def test_what_was_configured_for_this_plan_in_this_boot_is_not_configured_again(
    place: Place, phases: list[str]
) -> None:
    place.fetched.write_text(PLAN.commit)
    assert running.build(place, "build.pyz") == 0
    assert phases == ALL
    assert (state(place)["phase"], state(place)["error"]) == ("prove", None)
    assert not place.pid.exists()
    phases.clear()
    place.configured.write_text(PLAN.fingerprint)
    assert running.build(place, "build.pyz") == 0
    assert phases == [each for each in ALL if each != "configure"]
    phases.clear()
    place.boot.write_text("another")  # what is there may be what a power cut left of it
    assert running.build(place, "build.pyz") == 0
    assert phases == ALL
    assert place.build.exists()
    place.fetched.unlink()  # it was still being fetched
    place.boot.write_text("another")
    assert running.build(place, "build.pyz") == 0
    assert not place.source.exists()


def test_a_wheel_that_is_proven_is_all_there_is_to_do(place: Place, phases: list[str]) -> None:
    place.wheels.mkdir()
    wheel = place.wheels / "torch-x.whl"
    wheel.write_bytes(b"x")
    known = {"fingerprint": PLAN.fingerprint, "file": wheel.name, "sha256": steps.digest(wheel)}
    place.manifest.write_text(json.dumps(known))
    assert running.build(place, "build.pyz") == 0
    assert phases == []
    wheel.write_bytes(b"y")
    assert running.build(place, "build.pyz") == 0
    assert phases == ALL


@pytest.mark.usefixtures("phases")
def test_what_failed_on_a_full_disk_can_be_written_down(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = steps.write_whole

    def write(path: Path, text: str) -> None:
        """Fail as long as the disk is full."""
        if place.reserve.exists():
            assert place.reserve.stat().st_size > 10_000
            raise OSError(28, "No space left on device")
        written(path, text)

    def full(*given: Any) -> None:
        monkeypatch.setattr(steps, "write_whole", write)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(steps, "fetch", full)
    assert running.build(place, "build.pyz") == 1
    assert state(place)["phase"] == "fetch"
    assert "cannot go on: OSError: [Errno 28] No space left" in state(place)["error"]["sentence"]


@pytest.mark.usefixtures("phases")
def test_without_ccache_nothing_is_built(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running.shutil, "which", lambda *given, **more: None)
    assert running.build(place, "build.pyz") == 1
    assert "ccache is missing" in state(place)["error"]["sentence"]


@pytest.mark.parametrize("text", ["", "[]", '{"fingerprint": "%s"}' % ("e" * 64)])
def test_a_plan_that_cannot_be_read_is_one_sentence(
    place: Place, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    running.State(place).save("prove")  # of the build before
    (place.root / "plan.json").write_text(text)
    assert running.build(place, "build.pyz") == 1
    sentence = state(place)["error"]["sentence"]
    assert state(place)["phase"] == "plan"
    assert "plan.json cannot be read (" in sentence and "run the deploy again" in sentence
    assert capsys.readouterr().err == f"{sentence}\n"


# -- the proof

FOUND: dict[str, Any] = {
    "version": PLAN.version, "git_version": COMMIT, "libraries": 12, "unloadable": [],
    "archs": ["sm_90", "sm_120", "compute_120"], "nccl": "2.30.7", "store": ["pt_tcpstore_uv"],
    "store_error": None,
}  # fmt: skip


def test_a_torch_as_it_is_declared_is_proven() -> None:
    proven = prove.judge(PLAN, FOUND, stand_in=False)
    assert proven == {
        "imports": True, "libraries": 12, "commit": COMMIT, "store": "pt_tcpstore_uv",
        "archs": ["sm_120", "sm_90"], "nccl": "2.30.7",
    }  # fmt: skip
    assert "stand-in" in prove.judge(PLAN, {**FOUND, "store": []}, stand_in=True)["store"]


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
        prove.judge(PLAN, {**FOUND, **wrong}, stand_in=False)


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
