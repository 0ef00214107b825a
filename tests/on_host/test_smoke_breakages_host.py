"""S0 to S3 and S5 broken in every way we know, in real runs; S4 is in `test_smoke_breakages`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyinfra_gpu.stacks.bundle import smoke_bundle
from tests.on_host import smoke_runs
from tests.on_host.preloaded import UNCOMPILED, Preloaded
from tests.on_host.smoke_runs import (
    FAILED,
    PASSED_BUT_NOT_PROOF,
    Plan,
    Run,
    broken,
    broken_compiled,
    broken_preloaded,
)

pytestmark = pytest.mark.torch

_LIBRARIES = '    with journal.measuring("libraries") as value:\n'
_IMPORT = '    journal.fact("identity", identity(torch), 0.0)\n'
_FINISHED = "    journal.finished()\n"
_COMPILE = "        result = compiled(*inputs)\n"
_SLEEP = "__import__('time').sleep(10**6)"
_COPY = (
    "    import ctypes, shutil\n"
    "    mapped = libraries.read()['mapped']['libc10'][0]\n"
    "    copy = options.directory / {!r}\n"
    "    copy.parent.mkdir(exist_ok=True)\n"
    "    ctypes.CDLL(shutil.copy(mapped, copy))\n"
)

PLANS = {
    "the compiler hangs": broken_compiled(  # first, because others run while it waits
        "S3.compile",
        ("process 0 was still at 'compile' after", "(S3's deadline)"),
        *("checks/compile_check.py", _COMPILE, f"        {_SLEEP}\n{_COMPILE}"),
        deadline=100,  # of which a quarter is for the import of torch, on a busy machine too
    ),
    "shared memory is full": broken(
        "S0.shm",
        (
            "16 MiB cannot be allocated in /dev/shm (20 MiB, 2 free): No space left on device",
            "largest files: somebodys (18 MiB)",
        ),
        mounts="mount -t tmpfs -o size=20m tmpfs /dev/shm;"
        " dd if=/dev/zero of=/dev/shm/somebodys bs=1M count=18 status=none",
    ),
    "the disk is full": broken(
        "S0.disk",
        "has 8 MiB free, the test needs 64 MiB",
        *("launcher/run.py", "        self._site.directory.mkdir()\n", ""),
        *(
            "launcher/run.py",
            "        shutil.rmtree(self._site.directory, ignore_errors=True)\n",
            "",
        ),
        mounts='mkdir "$1/verdict.json.logs";'
        ' mount -t tmpfs -o size=8m tmpfs "$1/verdict.json.logs"',
    ),
    "torch dies on import": broken(
        "S1.import",
        ("process 0 (pid", "was ended by signal 6 (SIGABRT) at 'import'"),
        *(
            "checks/single.py",
            "        import torch\n\n",
            "        os.abort()\n        import torch\n\n",
        ),
    ),
    "torch cannot be imported": broken(
        "S1.import",
        "raised at 'import': ImportError: libcudart.so.13: cannot open shared object file",
        "checks/single.py",
        "        import torch\n\n",
        "        raise ImportError('libcudart.so.13: cannot open shared object file')\n"
        "        import torch\n\n",
    ),
    "another torch is imported than was found": broken_preloaded(
        "S1.import",
        "process 0 imported torch 1.0",
        *("checks/single.py", _IMPORT, f"    torch.__version__ = '1.0'\n{_IMPORT}"),
    ),
    "a library is mapped twice": broken(
        "S1.libraries",
        ("libc10 is mapped 2 times", "other/libc10.so"),
        *("checks/single.py", _LIBRARIES, _COPY.format("other/libc10.so") + _LIBRARIES),
    ),
    "a library comes from a directory of compat libraries": broken(
        "S1.library_paths",
        ("libcuda is taken from a 'compat' directory", "compat/libcuda.so.1"),
        *("checks/single.py", _LIBRARIES, _COPY.format("compat/libcuda.so.1") + _LIBRARIES),
    ),
    "a library comes from outside of the environment": broken(
        "S1.library_paths",
        ("libtorch_cuda is taken from", "outside of"),
        *("checks/single.py", _LIBRARIES, _COPY.format("other/libtorch_cuda.so") + _LIBRARIES),
    ),
    "torch serves a store without libuv": broken_preloaded(
        "S2.libuv",
        "a store that asks for libuv is served by these threads: pt_tcpstore",
        *("checks/libuv.py", "use_libuv=True", "use_libuv=False"),
    ),
    "torch was built without libuv": broken_preloaded(
        "S2.libuv",
        "a store with libuv cannot be served: use_libuv was requested but PyTorch was built",
        "checks/libuv.py",
        '        store.set("smoke", "test")\n',
        "        raise RuntimeError('use_libuv was requested but PyTorch was built without it')\n",
    ),
    "compiling falls back to eager in silence": broken_compiled(
        "S3.kernel",
        ("silently ran the function without a compiled kernel", "aten::mul"),
        "checks/compile_check.py",
        "torch.compile(_function, fullgraph=True)",
        "torch.compile(_function, fullgraph=True, backend='eager')",
    ),
    "the compiled result is wrong": broken_compiled(
        "S3.result",
        "compiled, 1 of 64 elements are wrong, the first is element 3",
        *("checks/compile_check.py", _COMPILE, f"{_COMPILE}        result[3] += 1\n"),
    ),
    "the compiler fails": broken_compiled(
        "S3.compile",
        "torch.compile does not work: ",
        "checks/compile_check.py",
        "    compiled = torch.compile(",
        "    import torch._inductor.config as config\n"
        "    config.cpp.cxx = ('/bin/false',)\n"
        "    compiled = torch.compile(",
    ),
    "the process that tries a device dies after its work": broken_preloaded(
        "S3.finished",
        "was ended by signal 6 (SIGABRT) after its work was done",
        *("checks/single.py", _FINISHED, f"{_FINISHED}    os.abort()\n"),
    ),
}


@pytest.mark.parametrize("plan", PLANS)
def test_this_is_noticed_and_stops_the_test(plan: str, runs: Callable[[str], Run]) -> None:
    run, wanted = runs(plan), PLANS[plan]
    failed = run.verdict["failed"]
    assert failed is not None, run.output
    assert (failed["id"], run.code, run.passed) == (wanted.check, FAILED, False), run.output
    for words in wanted.words:
        assert words in failed["sentence"]
    gate = wanted.check.partition(".")[0]
    later = [stage for stage in run.verdict["stages"] if gate < stage["id"] < "S5"]
    assert {stage["status"] for stage in later} <= {"skip"}
    skipped = [each for each in run.verdict["checks"] if each["id"].startswith("S4.")]
    assert {each["status"] for each in skipped} == {"skip"}
    assert {each["detail"] for each in skipped} == {f"not reached, {wanted.check} failed"}
    if wanted.check != "S0.disk":  # whose evidence went with the disk that was mounted for it
        assert any(wanted.check in entry["text"] for entry in run.evidence())


@pytest.mark.parametrize("plan", ["the compiler hangs"])
def test_a_hang_of_one_device_shows_its_stack(plan: str, runs: Callable[[str], Run]) -> None:
    tail = runs(plan).verdict["failed"]["tail"]
    assert any("compile_check.py" in line and "in measure" in line for line in tail)


def test_without_a_compiler_a_cpu_host_is_degraded_and_told_what_to_install(
    compiling_python: Preloaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    plan = Plan(environment={"PATH": str(tmp_path)}, preloaded=True, compiled=True)
    run = smoke_runs.run(compiling_python, tmp_path, plan)
    assert (run.verdict["status"], run.code) == ("warn", PASSED_BUT_NOT_PROOF), run.output
    assert "no C++ compiler is installed (g++)" in run.check("S3.compile")["detail"]
    assert run.status("S3.kernel") == run.status("S4.compiled_step") == "skip"
    assert run.passed


def test_what_an_earlier_test_left_must_be_ended_first(python: str, tmp_path: Path) -> None:
    program = "import time; time.sleep(1000)"
    left = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "smoke_test.pyz")])
    try:
        process = smoke_runs.start(python, tmp_path, smoke_bundle())
        output, _ = process.communicate(timeout=300)
    finally:
        left.kill()
        left.wait()
    run = Run(process.returncode, output, tmp_path)
    assert (run.code, run.verdict["failed"]["id"]) == (FAILED, "S0.others"), output
    assert f"kill {left.pid}" in run.verdict["failed"]["sentence"]


def test_a_file_left_in_shared_memory_is_told_and_not_removed(
    preloaded_python: Preloaded, tmp_path: Path
) -> None:
    file = Path(f"/dev/shm/smoke-test-{os.getpid()}")
    leave = f"    __import__('pathlib').Path({str(file)!r}).touch()\n"
    plan = broken_preloaded("", "", "ranks/worker.py", _FINISHED, leave + _FINISHED)
    try:
        run = smoke_runs.run(preloaded_python, tmp_path, plan)
        assert file.exists()
    finally:
        file.unlink(missing_ok=True)
    assert (run.status("S5.shared_files"), run.verdict["status"]) == ("warn", "warn"), run.output
    assert f"rm {file}" in run.check("S5.shared_files")["detail"]


def test_a_directory_that_takes_no_verdict_is_told_in_one_sentence(
    python: str, tmp_path: Path
) -> None:
    mounts = 'mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"'
    plan = Plan(mounts=mounts, environment=UNCOMPILED)
    process = smoke_runs.start(python, tmp_path, smoke_bundle(), plan)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == FAILED
    sentence = f"the directory {tmp_path} is not writable for this user"
    assert output == f"smoke test: {sentence}; see --help\n"


def test_a_verdict_is_written_though_its_evidence_cannot_be(python: str, tmp_path: Path) -> None:
    plan = broken(
        *("S0.disk", ""),
        *(
            "checks/host_checks.py",
            "_DISK_WISHED_MIB = 64, 1024",
            "_DISK_WISHED_MIB = 10**9, 10**9",
        ),
        *("launcher/evidence.py", "path = directory / FILE", "path = directory / 'none' / FILE"),
    )
    run = smoke_runs.run(python, tmp_path, plan)
    assert (run.code, run.verdict["failed"]["id"]) == (FAILED, "S0.disk"), run.output
    assert run.verdict["evidence"] is None
    assert "the evidence could not be kept" in run.output


def test_a_host_without_gpus_fails_the_test_for_gpus_at_once(python: str, tmp_path: Path) -> None:
    """The wiring of the GPU modes as far as it goes without a GPU."""
    file = tmp_path / "smoke_test.pyz"
    file.write_bytes(smoke_bundle())
    command = [python, str(file), "--mode", "gpu", "--gpus", "2"]
    output = tmp_path / "verdict.json"
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run([*command, "--output", str(output)], env=environment, timeout=300)
    run = Run(done.returncode, "", tmp_path)
    assert (run.code, run.verdict["mode"], run.verdict["status"]) == (FAILED, "gpu", "fail")
    assert run.verdict["failed"]["id"] == "S0.gpus"
    assert {each["status"] for each in run.verdict["stages"][1:]} == {"skip"}
