"""The program that builds torch on a host: what it reads, checks, counts and refuses."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from pyinfra_gpu.on_host.build import (
    checks,
    fetch,
    memory,
    ninja,
    prove,
    settings,
    tree,
    unclean,
)
from pyinfra_gpu.on_host.build import compile as compiling
from pyinfra_gpu.on_host.build import run as running
from pyinfra_gpu.on_host.build.commands import Commands, failure
from pyinfra_gpu.on_host.build.errors import BuildError
from pyinfra_gpu.on_host.build.place import Place
from pyinfra_gpu.on_host.build.plan import Plan
from pyinfra_gpu.on_host.build.state import State, boot_id

COMMIT = "ab" * 20
PLAN = Plan(
    fingerprint="f" * 64,
    ingredients={},
    source={"git": "https://example.org/pytorch", "commit": COMMIT},
    version="2.14.1+cu130",
    settings={"USE_CUDA": "1", "USE_DISTRIBUTED": "1", "USE_TENSORPIPE": "1", "USE_NUMA": "0"},
    declared=(),
    archs=("9.0", "12.0"),
    cuda="/usr/local/cuda-13.0",
    nccl=None,
    cudnn=None,
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
SUMMARY = "--   USE_CUDA              : 1\n--   USE_DISTRIBUTED       : 1\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.build.mkdir(parents=True)
    (made.source / "CMakeLists.txt").write_text("option(USE_MKLDNN)\noption(USE_NUMA)\n")
    return made


def configured(place: Place, *, ninja: str = LIBUV + CODE, log: str = SUMMARY) -> Place:
    (place.build / "build.ninja").write_text(ninja)
    (place.root / "configure.txt").write_text(log)
    return place


# -- the tree


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n',
         tree.SETUPTOOLS),
        ("[build-system]\nbuild-backend = 'scikit_build_core.build'\n[project]\n", tree.SCIKIT),
        ("[project]\nname = 'torch'\n", tree.SETUPTOOLS),  # as trees that have only a setup.py
    ],
)  # fmt: skip
def test_the_entry_point_is_what_the_tree_names(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "setup.py").write_text("")
    (tmp_path / "pyproject.toml").write_text(text)
    assert tree.backend(tmp_path) == expected


def test_a_tree_of_another_backend_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[build-system]\nbuild-backend = "hatchling.build"\n')
    with pytest.raises(BuildError, match=r"names the build backend 'hatchling\.build'"):
        tree.backend(tmp_path)


def test_what_a_tree_needs_is_read_from_both_places(tmp_path: Path) -> None:
    text = '[build-system]\nrequires = [\n    "setuptools[x]>=70",  # why\n    "wheel",\n]\n[a]\n'
    (tmp_path / "pyproject.toml").write_text(text)
    (tmp_path / "requirements-build.txt").write_text("# some\nnumpy>=2  # headers\nwheel\n-r a\n")
    assert tree.requires(tmp_path) == ["setuptools[x]>=70", "wheel", "numpy>=2"]


READ = {
    'option(USE_SPEED "why" ON)': True,
    "if($ENV{USE_SPEED})": True,
    'set(USE_SPEED "" CACHE STRING "why")': True,
    "set(USE_SPEED ${USE_SPEED} more)": True,
    "function(f)\n  set(USE_SPEED ${ARGN})\n  if(USE_SPEED)": False,  # as select_compute_arch.cmake
    "set(USE_SPEEDS 1)": False,
}


@pytest.mark.parametrize("text", READ)
def test_an_option_is_read_where_it_is_no_variable_of_the_files_own(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "CMakeLists.txt").write_text(f"project(x)\n{text}\n")
    assert tree.reads(tmp_path, "USE_SPEED") is READ[text]


# -- after configuring


def test_a_build_as_it_is_declared_passes(place: Place) -> None:
    checks.check(PLAN, configured(place))
    there = f"{SUMMARY}-- Found CUDNN: /opt/cudnn/lib/libcudnn.so\n"
    checks.check(replace(PLAN, cudnn="/opt/cudnn"), configured(place, log=there))
    checks.check(
        CPU,
        configured(place, ninja=LIBUV, log=SUMMARY.replace("CUDA              : 1", "CUDA : 0")),
    )


WRONG: dict[str, tuple[Plan, str, str, str]] = {
    "no libuv": (PLAN, CODE, SUMMARY, "no command in build.ninja defines TORCH_USE_LIBUV"),
    "a system TensorPipe": (
        PLAN, CODE, "-- Using system TensorPipe\n", "a system TensorPipe was taken",
    ),
    "an architecture too many": (
        PLAN, LIBUV + CODE + "  F = -gencode arch=compute_80,code=sm_80\n", SUMMARY,
        "nvcc would make code for sm_120, sm_80, sm_90, and pytorch_archs declares sm_120, sm_90",
    ),
    "an architecture missing": (
        replace(PLAN, archs=("12.0",)), LIBUV + CODE, "Added CUDA NVCC flags for: -gencode;x\n",
        "declares sm_120: `Added CUDA NVCC flags for: -gencode;x`",
    ),
    "CUDA was not found": (
        PLAN, LIBUV + CODE, "--   USE_CUDA              : 0\n",
        r"USE_CUDA = 1 is declared, and CMake decided otherwise: `--   USE_CUDA +: 0`",
    ),
    "a flag that CMake does not use": (
        replace(PLAN, declared=("USE_MKLDNN",)), LIBUV + CODE,
        "CMake Warning:\n  Manually-specified variables were not used by the project:\n\n"
        "    CUDA_ARCH_LIST\n    USE_MKLDNN\n",
        r"pytorch_flags has USE_MKLDNN, which nothing in this source reads",
    ),
    "another cuDNN than the declared one": (
        replace(PLAN, cudnn="/opt/cudnn"), LIBUV + CODE,
        f"{SUMMARY}-- Found CUDNN: /usr/lib/x86_64-linux-gnu/libcudnn.so\n",
        r"pytorch_cudnn is /opt/cudnn, and CMake took another: `-- Found CUDNN: /usr/lib",
    ),
    "no cuDNN": (
        replace(PLAN, cudnn="/opt/cudnn"), LIBUV + CODE, SUMMARY, "`no line names any`: have incl",
    ),
    "a version of its own": (
        CPU, LIBUV, "Building wheel torch-2.6.0+debian\n-- Building version 2.6.0+debian\n",
        r"would build torch 2\.6\.0\+debian, and 2\.14\.1\+cu130 is declared: it does not take",
    ),
    "a flag that no file names": (
        replace(PLAN, declared=("USE_SPEED",)), LIBUV + CODE, SUMMARY,
        "USE_SPEED, which nothing in this source reads: remove it .no CMake file",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_as_declared_is_one_sentence_before_anything_is_compiled(
    place: Place, what: str
) -> None:
    plan, ninja_text, log, sentence = WRONG[what]
    with pytest.raises(BuildError, match=sentence):
        checks.check(plan, configured(place, ninja=ninja_text, log=log))


def test_a_stand_in_is_built_in_rehearsals_alone(place: Place) -> None:
    (place.source / tree.STAND_IN).write_text("")
    checks.check(replace(PLAN, rehearsal=True), configured(place))
    with pytest.raises(BuildError, match="calls itself a stand-in for rehearsals"):
        checks.check(PLAN, configured(place))


# -- how much at a time


@pytest.mark.parametrize(
    ("plan", "cores", "expected"),
    [(CPU, 64, 16), (CPU, 4, 4), (replace(CPU, memory_mib=1000), 8, 1), (PLAN, 64, 5)],
)
def test_jobs_follow_memory_and_cores(place: Place, plan: Plan, cores: int, expected: int) -> None:
    assert settings.jobs(plan, place.source, cores) == expected


def test_where_flash_attention_is_counted_apart_more_jobs_fit(place: Place) -> None:
    (place.source / "CMakeLists.txt").write_text("$ENV{FLASH_ATTENTION_MAX_JOBS}")
    assert settings.jobs(PLAN, place.source, 64) == 8
    made = settings.environment(PLAN, place, {"LD_PRELOAD": "x", "HOME": "/h"}, None)
    assert made["FLASH_ATTENTION_MAX_JOBS"] == "5"
    assert made["TORCH_CUDA_ARCH_LIST"] == "9.0;12.0"
    assert "LD_PRELOAD" not in made


def test_ccache_is_used_where_it_is_bounded_and_without_preprocessing_twice(place: Place) -> None:
    assert not any("CCACHE" in name for name in settings.environment(CPU, place, {}, None))
    made = settings.environment(CPU, place, {}, "/usr/bin/ccache")
    assert made["CMAKE_CXX_COMPILER_LAUNCHER"] == "/usr/bin/ccache"
    assert "CMAKE_CUDA_COMPILER_LAUNCHER" not in made
    assert "CMAKE_CUDA_COMPILER_LAUNCHER" in settings.environment(
        PLAN, place, {}, "/usr/bin/ccache"
    )
    assert made["CCACHE_DIR"] == str(place.ccache)
    assert made["CCACHE_MAXSIZE"] == "30G"
    assert made["CCACHE_DEPEND"] == "1"


# -- compiling


class Ninja(Commands):
    """Answers as ninja would, run after run."""

    def __init__(self, log: Path, *runs: tuple[int, list[str]]) -> None:
        super().__init__(log, {})
        self.runs, self.words = list(runs), list[Sequence[str]]()
        self.manifest: tuple[int, list[str]] = (0, [])

    def tried(
        self, words: Sequence[str], *, hear: Callable[[str], None] = lambda line: None, **_: Any
    ) -> tuple[int, list[str]]:
        if words[-1] == "build.ninja":
            for line in self.manifest[1]:
                hear(line)
            return self.manifest
        self.words.append(words)
        status, lines = self.runs.pop(0)
        for line in lines:
            hear(line)
        return status, lines


KILLED = "g++: fatal error: Killed signal terminated program cc1plus"
FIRST = ["[1/4] a", "[2/4] b", "FAILED: c.o", KILLED, "ninja: build stopped: subcommand failed."]


def begun(place: Place) -> State:
    return State.begun(place, PLAN.fingerprint)


def test_what_failed_on_a_full_disk_can_be_written_down(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.root / "plan.json").write_text(json.dumps(asdict(PLAN)))

    def full(*given: Any) -> None:
        assert place.reserve.stat().st_size > 100_000
        raise OSError(28, "No space left on device")

    saved = State.save

    def save(state: State, **changes: Any) -> None:
        """Fail as long as the disk is full."""
        if changes.get("status") == "failed" and place.reserve.exists():
            raise OSError(28, "No space left on device")
        saved(state, **changes)

    monkeypatch.setattr(running, "_phases", full)
    monkeypatch.setattr(State, "save", save)
    with pytest.raises(OSError, match="No space left"):
        running.build(place, "build.pyz")
    known = State(place).known
    assert known["status"] == "failed"
    assert "the build broke: OSError: [Errno 28] No space left" in known["error"]["sentence"]


def test_where_memory_runs_out_half_as_many_go_on_and_it_is_said(place: Place) -> None:
    state = begun(place)
    state.save(jobs=8, limit_mib=PLAN.memory_mib)
    run = Ninja(place.log, (1, FIRST), (0, ["[1/2] c", "[2/2] d"]))
    compiling.compile_all(PLAN, place, run, state)
    assert [words[-1] for words in run.words] == ["8", "4"]
    assert state.known["notes"] == [
        "memory ran out: the build goes on with 4 compilers side by side"
    ]
    assert (state.known["steps_done"], state.known["total"], state.known["compiled"]) == (4, 4, 4)


def test_another_limit_of_memory_counts_the_compilers_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    state = begun(place)
    state.save(jobs=1, limit_mib=4096)  # memory ran out, and pytorch_build_memory_gib was raised
    run = Ninja(place.log, (0, ["[1/1] c"]), (0, []))
    compiling.compile_all(CPU, place, run, State.begun(place, CPU.fingerprint))
    compiling.compile_all(CPU, place, run, State.begun(place, CPU.fingerprint))
    assert [words[-1] for words in run.words] == ["16", "16"]


@pytest.mark.parametrize("text", ["", '{"fingerprint": "%s"}' % ("e" * 64)])
def test_a_plan_that_cannot_be_read_is_said_to_who_follows_and_in_the_journal(
    place: Place, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    begun(place).save(status="done")  # of the build before
    (place.root / "plan.json").write_text(text)
    assert running.build(place, "build.pyz") == 1
    known = State(place).known
    assert known["status"] == "failed"
    assert known["fingerprint"] == ("e" * 64 if text else "0" * 64)
    assert "run the deploy again" in known["error"]["sentence"]
    assert capsys.readouterr().err == f"{known['error']['sentence']}\n"


def test_what_makes_build_ninja_anew_is_no_part_of_the_progress(place: Place) -> None:
    state = begun(place)
    run = Ninja(place.log, (0, [f"[{done}/1550] x" for done in (1, 2, 3)]))
    run.manifest = (0, ["[1/4] Generating ATen sources", "[3/4] Generating ATen declarations"])
    compiling.compile_all(PLAN, place, run, state)
    assert (state.known["percent"], state.known["total"]) == (10, 1550)
    run.manifest = (1, ["ninja: error: unknown target 'build.ninja'"])
    run.runs = [(0, ["[1/1] x"])]
    compiling.compile_all(PLAN, place, run, state)  # of another generator
    run.manifest = (1, ["FAILED: build.ninja", "CMake Error at CMakeLists.txt:9 (message):"])
    with pytest.raises(BuildError, match="CMake Error at CMakeLists"):
        compiling.compile_all(PLAN, place, run, state)


def test_one_compiler_that_needs_too_much_is_the_end(place: Place) -> None:
    state = begun(place)
    state.save(jobs=1, limit_mib=PLAN.memory_mib)
    with pytest.raises(BuildError, match="one compiler alone needs more than the 32768 MiB"):
        compiling.compile_all(PLAN, place, Ninja(place.log, (1, FIRST)), state)


def test_the_first_error_is_told_and_not_its_consequences(place: Place) -> None:
    lines = [
        *("[1/9] a", "FAILED: x.o", "/usr/bin/c++ -c x.cc"),
        "x.cc:1:10: fatal error: no.h: No such file or directory",
        *("compilation terminated.", "FAILED: y.o", "y.cc:2:1: error: z"),
    ]
    with pytest.raises(BuildError, match=r"compiling failed: x\.cc:1:10: fatal error") as caught:
        compiling.compile_all(PLAN, place, Ninja(place.log, (1, lines)), begun(place))
    assert caught.value.lines[0] == "FAILED: x.o"


def test_what_cmake_only_tried_is_no_error() -> None:
    lines = ["-- Performing Test C_HAS_AVX_1 - Failed", "-- Looking for x - not found"]
    lines += [
        "CMake Error at CMakeLists.txt:9 (message):",
        "  it needs y",
        "-- Configuring incomplete",
    ]
    assert "CMake Error at CMakeLists.txt:9" in failure("configuring", 1, lines).sentence


def test_of_a_traceback_the_exception_is_told_and_not_the_code_above_it() -> None:
    """What the proof of the first whole wheel said began with "return _bootstrap._gcd_import"."""
    lines = ["Traceback (most recent call last):"]
    lines += [
        '  File "<frozen importlib._bootstrap>", line 1387, in _gcd_import',
        "    return a(b)",
    ] * 9
    lines += ["ImportError: libtorch.so.2.6: cannot open shared object file"]
    said = failure("importing the built torch", 1, lines).sentence
    assert said == f"importing the built torch failed: {lines[-1]}"


def test_what_cmake_did_not_find_is_named() -> None:
    lines = [
        "-- Configuring done (13.9s)",
        "CMake Error: The following variables are used in this project, but they are set to"
        " NOTFOUND.",
        "Please set them or make sure they are set and tested correctly in the CMake files:",
        "BLAS_LIBRARIES",
        '    linked by target "torch_cpu" in directory /opt/pyinfra-gpu/build/source/caffe2',
    ]
    assert failure("configuring", 1, lines).sentence.endswith("set to NOTFOUND. BLAS_LIBRARIES")


def test_percent_never_goes_back_and_a_resumed_run_counts_what_was_done(place: Place) -> None:
    state = begun(place)
    seen = []
    for total in (100, 60):  # 40 were done when it was cut off
        known = state.known
        progress = compiling.Progress(
            state, int(known["steps_done"]), int(known["total"]), lambda: None,
            clock=iter(range(0, 10_000, 2)).__next__,
        )  # fmt: skip
        for done in range(1, 41 if total == 100 else 61):
            progress.hear(f"[{done}/{total}] x")
            seen.append((known["percent"], known["steps_done"], known["total"]))
    assert [each[0] for each in seen] == sorted(each[0] for each in seen)
    assert seen[40][1:] == (41, 100)
    assert seen[-1] == (95, 100, 100)


def test_the_memory_in_use_is_that_of_the_units_group_without_cached_files(tmp_path: Path) -> None:
    (tmp_path / "system.slice/x.service").mkdir(parents=True)
    stat = tmp_path / "system.slice/x.service/memory.stat"
    stat.write_text("anon 3221225472\nfile 99999999999\nanon_thp 4096\n")
    (tmp_path / "own").write_text("0::/system.slice/x.service\n")
    assert memory.used_mib(tmp_path, tmp_path / "own") == 3072
    stat.unlink()
    assert memory.used_mib(tmp_path, tmp_path / "own") is None
    assert memory.used_mib(tmp_path, tmp_path / "none") is None


def test_a_line_that_is_no_step_is_none() -> None:
    assert ninja.step("[12/305] Building C") == ninja.Step(12, 305)
    assert ninja.step("ninja: no work to do.") is None


# -- after a power cut


def elf(sections: int = 4, *, cut: bool = False) -> bytes:
    head = bytearray(64)
    head[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", head, 40, 64)
    struct.pack_into("<HH", head, 58, 64, sections)
    return bytes(head) + bytes(64 * sections - (1 if cut else 0))


FILES = {
    "good.o": (elf(), True),
    "emptied.o": (b"", False),
    "zeros.o": (bytes(4096), False),
    "cut.o": (elf(cut=True), False),
    "text.o": (b"int x;", False),
    "lib.a": (b"!<arch>\nrest", True),
    "emptied.a": (b"", False),
    "lib.so.1": (bytes(64), False),
    "generated.cpp": (b"int x;\n", True),
    "emptied.h": (b"", False),
    "half.h": (b"int x;" + bytes(5000), False),
}


def test_outputs_that_cannot_be_whole_go_and_no_other(place: Place) -> None:
    rows = ["# ninja log v5"]
    for name, (content, _) in FILES.items():
        (place.build / name).write_bytes(content)
        os.utime(place.build / name, (1000, 1000))
        rows.append(f"0\t1\t1000\t{name}\tabc")
    (place.build / ".ninja_log").write_text("\n".join(rows) + "\n0\t1\t10\x00\x00")
    gone = unclean.prune(place.build, synced=2000.0)
    left = {name for name in FILES if (place.build / name).exists()}
    assert left == {name for name, (_, whole) in FILES.items() if whole}
    assert gone == len(FILES) - len(left)


def test_what_finished_after_the_last_sync_goes_though_it_looks_whole(place: Place) -> None:
    for name, time in (("old.o", 900), ("new.o", 1001)):
        (place.build / name).write_bytes(elf())
        os.utime(place.build / name, (time, time))
    (place.build / ".ninja_log").write_text("0\t1\t1\told.o\ta\n0\t1\t1\tnew.o\tb\n")
    assert unclean.prune(place.build, synced=1000.0) == 1
    assert (place.build / "old.o").exists()


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ({}, False),
        ({"status": "running", "boot_id": "another"}, True),
        ({"status": "running"}, False),  # a killed program on a machine that runs
        ({"status": "stopped", "boot_id": "another"}, False),  # a restart in good order
        ({"status": "failed", "boot_id": "another", "unclean": True}, True),
    ],
)
def test_a_machine_that_went_down_at_work_is_noticed(
    place: Place, before: dict[str, Any], expected: bool
) -> None:
    if before:
        whole = {"boot_id": boot_id(), "schema": 1, "fingerprint": PLAN.fingerprint, **before}
        place.state.write_text(json.dumps(whole))
    assert begun(place).known["unclean"] is expected


def test_another_fingerprint_begins_anew_and_the_same_one_goes_on(place: Place) -> None:
    begun(place).save(done=["fetch"], percent=40, status="failed")
    assert begun(place).known["done"] == ["fetch"]
    assert State.begun(place, "0" * 64).known["done"] == []


def test_half_a_state_is_none(place: Place) -> None:
    place.state.write_text('{"fingerprint": "ff')
    assert begun(place).known["done"] == []


# -- the source


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "protocol.file.allow=always"]
    done = subprocess.run(
        ["git", *who, "-C", str(folder), *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> tuple[Path, str]:
    """Return a checkout with one submodule, and its commit."""
    for name in ("inner", "outer"):
        folder = tmp_path / name
        folder.mkdir()
        git(folder, "init", "--quiet")
        (folder / "file").write_text("x\n")
        if name == "outer":
            git(folder, "submodule", "--quiet", "add", str(tmp_path / "inner"), "third_party/inner")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", "x")
    return tmp_path / "outer", git(tmp_path / "outer", "rev-parse", "HEAD")


def commands(folder: Path) -> Commands:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    return Commands(folder / "log.txt", environment)


def test_a_whole_checkout_is_believed_and_a_damaged_one_is_not(
    checkout: tuple[Path, str], tmp_path: Path
) -> None:
    folder, commit = checkout
    run = commands(tmp_path)
    assert fetch.wrong_with(folder, commit, run) is None
    assert "not at" in str(fetch.wrong_with(folder, "0" * 40, run))
    (folder / "third_party/inner/file").write_text("changed\n")
    assert "files in it were changed: third_party/inner" in str(
        fetch.wrong_with(folder, commit, run)
    )
    git(folder, "submodule", "--quiet", "deinit", "--force", "third_party/inner")
    wrong = str(fetch.wrong_with(folder, commit, run))
    assert wrong == "submodules are missing or at another commit: third_party/inner"


def test_an_archive_is_unpacked_only_with_its_digest(tmp_path: Path) -> None:
    (tmp_path / "pytorch-v2").mkdir()
    (tmp_path / "pytorch-v2/setup.py").write_text("x\n")
    archive = tmp_path / "x.tar.gz"
    subprocess.run(["tar", "-czf", str(archive), "-C", str(tmp_path), "pytorch-v2"], check=True)
    good = fetch.digest(archive)
    place = Place(tmp_path / "build")
    place.root.mkdir()
    wrong = replace(PLAN, source={"url": archive.as_uri(), "sha256": "0" * 64})
    with pytest.raises(BuildError, match=f"has SHA-256 {good}, and pytorch_source_sha256 is 0000"):
        fetch.fetch(wrong, place, commands(tmp_path), unclean=False)
    right = replace(PLAN, source={"url": archive.as_uri(), "sha256": good})
    fetch.fetch(right, place, commands(tmp_path), unclean=False)
    assert (place.source / "setup.py").read_text() == "x\n"
    archive.unlink()
    fetch.fetch(right, place, commands(tmp_path), unclean=False)  # it is there


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


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"version": "2.14.1"}, "says it is 2.14.1"),
        ({"git_version": "Unknown"}, "of commit Unknown"),
        ({"unloadable": [["lib/libtorch.so", "libcudnn.so.9: cannot open"]]}, "libcudnn.so.9"),
        ({"archs": ["sm_90"]}, r"has code for \['sm_90'\]"),
        ({"store": ["pt_tcpstore"]}, "does not serve its store with libuv"),
        ({"store": [], "store_error": "built without libuv support"}, "without libuv support"),
    ],
)
def test_a_torch_that_is_not_what_was_declared_is_not_proven(
    wrong: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BuildError, match=sentence):
        prove.judge(PLAN, {**FOUND, **wrong}, stand_in=False)


def test_the_nccl_of_the_tree_is_the_one_that_is_built_in() -> None:
    own = replace(PLAN, settings={**PLAN.settings, "USE_NCCL": "1", "USE_SYSTEM_NCCL": "0"})
    assert prove.judge(own, FOUND, stand_in=False, nccl="v2.30.7-1")["nccl"] == "2.30.7"
    with pytest.raises(BuildError, match=r"has NCCL 2\.30\.7, and its tree pins v2\.31\.0-1"):
        prove.judge(own, FOUND, stand_in=False, nccl="v2.31.0-1")
    system = replace(own, settings={**own.settings, "USE_SYSTEM_NCCL": "1"})
    assert prove.judge(system, FOUND, stand_in=False, nccl="v2.31.0-1")["imports"] is True


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
    code = "from pyinfra_gpu.on_host.build.inside import _libraries as l; import json, pathlib; "
    code += "print(json.dumps(l(pathlib.Path.cwd())))"
    known = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=known, capture_output=True, text=True
    )
    told = json.loads(done.stdout)
    ((path, why),) = told["unloadable"]
    assert (told["libraries"], path) == (2, "liblacks.so.1")
    assert "undefined symbol: g" in why


def test_what_a_stand_in_cannot_show_is_said() -> None:
    assert "stand-in" in str(prove.judge(PLAN, {**FOUND, "store": []}, stand_in=True)["store"])


def test_the_error_of_a_program_that_says_nothing_is_a_sentence() -> None:
    assert "ended with status 3 and said nothing" in failure("configuring", 3, []).sentence


def test_a_commit_that_the_repository_does_not_have_is_one_sentence(
    checkout: tuple[Path, str], tmp_path: Path
) -> None:
    url = checkout[0].as_uri()
    place = Place(tmp_path / "build")
    place.root.mkdir()
    plan = replace(PLAN, source={"git": url, "commit": "0" * 39 + "1"})
    with pytest.raises(BuildError, match=r"has no commit 0{39}1: set pytorch_commit to what"):
        fetch.fetch(plan, place, commands(tmp_path), unclean=False)
    assert not place.source.exists()


def test_nccl_is_there_at_its_tag_before_configuring_or_not_at_all(
    checkout: tuple[Path, str], tmp_path: Path
) -> None:
    source, run = checkout[0], commands(tmp_path)
    git(source, "tag", "v2.30.7-1")
    outer = tmp_path / "tree"
    pins = outer / ".ci/docker/ci_commit_pins"
    pins.mkdir(parents=True)
    (outer / "third_party").mkdir()
    (pins / "nccl.txt").write_text("v9\n")
    with pytest.raises(BuildError, match="fetching NCCL v9 failed"):
        fetch._nccl(outer, run, source.as_uri())
    assert not (outer / "third_party/nccl").exists()
    (pins / "nccl.txt").write_text("v2.30.7-1\n")
    fetch._nccl(outer, run, source.as_uri())
    there = outer / "third_party/nccl"
    assert (there / "file").read_text() == "x\n"
    (there / "file").unlink()  # half of it
    fetch._nccl(outer, run, source.as_uri())
    assert (there / "file").exists()
    fetch._nccl(outer, run, "file:///nowhere")  # it is there
