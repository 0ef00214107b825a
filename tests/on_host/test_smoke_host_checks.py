"""S0, S1 and S5 on made-up facts and on prepared files: what passes, warns, fails, and is said."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyinfra_gpu.on_host.smoke.checks import after, host_checks, kernel_log, libraries, libuv
from pyinfra_gpu.on_host.smoke.judge.check import Check, Expected, Finding
from pyinfra_gpu.on_host.smoke.torch_location import TorchLocation

_TORCH = TorchLocation("/venv/lib/torch", "2.13.0+cpu", "/venv/lib")


def _expected(mode: str = "rehearsal-cpu") -> Expected:
    return Expected(ranks=2, allreduce_mib=4, torch=_TORCH, removed=[], mode=mode)


def _decide(checks: tuple[Check, ...], check_id: str, fact: Any, mode: str) -> Finding:
    check = next(check for check in checks if check.id == check_id)
    return check.decide({0: {check.needs[0]: fact}}, _expected(mode))


def _status(found: Finding) -> str:
    return found.status or ("pass" if found.ok else "fail")


_SHM = {"path": "/dev/shm", "trial_mib": 16, "error": None, "size_mib": 2000, "free_mib": 1500}
_DISK = {"path": "/opt", "free_mib": 5000, "free_inodes": 100}
_FULL = {"error": "No space left on device", "largest": [["nccl-a", 60]], "free_mib": 0}


@pytest.mark.parametrize(
    ("check", "fact", "mode", "status", "words"),
    [
        ("S0.environment", {}, "gpu", "pass", ""),
        ("S0.environment", {"NCCL_ALGO": "Ring"}, "gpu", "warn", "NCCL_ALGO; unset"),
        ("S0.shm", _SHM, "gpu", "pass", "1500 MiB free"),
        ("S0.shm", {**_SHM, "free_mib": 300}, "gpu", "warn", "less than 1024 MiB"),
        ("S0.shm", {**_SHM, "free_mib": 300}, "rehearsal-cpu", "pass", "300 MiB free"),
        ("S0.shm", {**_SHM, **_FULL}, "rehearsal-cpu", "fail", "largest files: nccl-a (60 MiB)"),
        (
            "S0.shm",
            {"path": "/dev/shm", "trial_mib": 16, "error": "No such file", "largest": []},
            "rehearsal-cpu",
            "fail",
            "16 MiB cannot be allocated in /dev/shm: No such file",
        ),
        ("S0.disk", _DISK, "gpu", "pass", "5000 MiB free"),
        ("S0.disk", {**_DISK, "free_mib": 63}, "gpu", "fail", "needs 64 MiB"),
        ("S0.disk", {**_DISK, "free_mib": 64}, "gpu", "warn", "less than 1024 MiB"),
        ("S0.disk", {**_DISK, "free_inodes": 0}, "gpu", "fail", "no inodes"),
        ("S0.disk", {**_DISK, "free_inodes": None}, "gpu", "pass", ""),
        ("S0.others", [], "gpu", "pass", ""),
        ("S0.others", [7, 9], "gpu", "fail", "kill 7 9"),
    ],
)
def test_the_host_is_judged(check: str, fact: Any, mode: str, status: str, words: str) -> None:
    found = _decide(host_checks.CHECKS, check, fact, mode)
    assert _status(found) == status
    assert words in found.detail


def test_this_host_has_all_facts_and_nothing_is_left_by_looking(tmp_path: Path) -> None:
    before = after.shared_files()
    facts = host_checks.read(tmp_path, tmp_path / "smoke_test.pyz", {}, "rehearsal-cpu")
    needed = {need for check in host_checks.CHECKS for need in check.needs}
    assert needed <= set(facts)
    assert after.shared_files() == before


def test_a_directory_that_is_not_there_has_no_shared_memory(tmp_path: Path) -> None:
    fact = host_checks._shared_memory(tmp_path / "none", 16)
    assert (fact["error"], fact["largest"]) == ("No such file or directory", [])


def test_another_process_of_this_bundle_is_found_and_not_one_that_only_reads_it(
    tmp_path: Path,
) -> None:
    bundle = tmp_path / "smoke_test.pyz"
    sleep = "import sys, time; print(1, flush=True); time.sleep(60)"
    runs = [sys.executable, "-c", sleep, str(bundle)]
    other = subprocess.Popen(runs, stdout=subprocess.PIPE)
    reader = subprocess.Popen(["sh", "-c", f"sleep 60; : {bundle}"])
    try:
        assert other.stdout is not None
        other.stdout.readline()
        assert host_checks.other_tests(bundle) == [other.pid]
    finally:
        for process in (other, reader):
            process.kill()
            process.wait()
        other.stdout.close()


_MAPS = """\
7f00-7f10 r-xp 00000000 08:01 11  /venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
7f10-7f20 rw-p 00010000 08:01 11  /venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
7f20-7f30 r-xp 00000000 08:01 12  /venv/lib/python3.11/site-packages/torch/lib/libtorch_python.so
7f30-7f40 r-xp 00000000 08:01 13  /venv/lib/python3.11/site-packages/torch/lib/libc10.so
7f40-7f50 r-xp 00000000 08:01 14  /venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2
7f50-7f60 r-xp 00000000 08:01 15  /venv/lib/torch/lib/libcudart-d0da41ae.so.11.0
7f60-7f70 r-xp 00000000 08:01 16  /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05
7f70-7f80 r-xp 00000000 08:01 17  /usr/lib/x86_64-linux-gnu/libcudadebugger.so.1
7f80-7f90 rw-p 00000000 00:00 0
7f90-7fa0 r-xp 00000000 08:01 18  /tmp/a file libc.so.6
7fa0-7fb0 rw-p 00000000 00:00 0   [heap]
"""


def test_mapped_libraries_are_read_from_the_memory_map_each_file_once() -> None:
    mapped = libraries.parse(_MAPS.splitlines())
    assert {name: len(paths) for name, paths in mapped.items()} == {
        "libtorch_cpu": 1,
        "libtorch_python": 1,
        "libc10": 1,
        "libnccl": 1,
        "libcudart": 1,
        "libcuda": 1,
    }
    assert mapped["libcuda"] == ["/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"]


_T = "/venv/lib/python3.11/site-packages/torch/lib"
_N = "/venv/lib/python3.11/site-packages/nvidia"


def _mapped(**changes: list[str]) -> dict[str, Any]:
    mapped = {
        "libtorch_cpu": [f"{_T}/libtorch_cpu.so"],
        "libtorch_python": [f"{_T}/libtorch_python.so"],
        "libtorch_cuda": [f"{_T}/libtorch_cuda.so"],
        "libc10": [f"{_T}/libc10.so"],
        "libc10_cuda": [f"{_T}/libc10_cuda.so"],
        "libnccl": [f"{_N}/nccl/lib/libnccl.so.2"],
        "libcudart": [f"{_N}/cu13/lib/libcudart.so.13"],
        "libcuda": ["/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"],
        **changes,
    }
    own = {name: [path for path in paths if "site" in path] for name, paths in mapped.items()}
    return {"prefix": "/venv", "mapped": mapped, "own": own}


def test_each_library_once_from_the_environment_passes() -> None:
    for check in libraries.CHECKS:
        assert _decide(libraries.CHECKS, check.id, _mapped(), "gpu").ok


@pytest.mark.parametrize(
    ("changes", "check", "words"),
    [
        ({"libnccl": [f"{_N}/a/libnccl.so.2", "/usr/lib/libnccl.so.2"]}, "S1.libraries", "2 times"),
        (
            {"libcuda": ["/usr/local/cuda-13.0/compat/libcuda.so.1"]},
            "S1.library_paths",
            "libcuda is taken from a 'compat' directory",
        ),
        (
            {"libcuda": ["/usr/local/cuda/lib64/stubs/libcuda.so"]},
            "S1.library_paths",
            "libcuda is taken from a 'stubs' directory",
        ),
        ({"libc10": ["/home/me/pytorch/libc10.so"]}, "S1.library_paths", "outside of /venv"),
    ],
)
def test_a_library_twice_or_from_elsewhere_fails(
    changes: dict[str, list[str]], check: str, words: str
) -> None:
    found = _decide(libraries.CHECKS, check, _mapped(**changes), "gpu")
    assert not found.ok
    assert words in found.detail


def test_a_library_of_the_toolkit_will_do_only_where_the_environment_has_none() -> None:
    toolkit = _mapped(libcudart=["/usr/local/cuda-13.0/lib64/libcudart.so.13"])
    assert _decide(libraries.CHECKS, "S1.library_paths", toolkit, "gpu").ok
    toolkit["own"]["libcudart"] = [f"{_N}/cu13/lib/libcudart.so.13"]
    found = _decide(libraries.CHECKS, "S1.library_paths", toolkit, "gpu")
    assert "libcudart is taken from /usr/local/cuda-13.0/lib64" in found.detail


def test_on_gpus_cudas_libraries_must_be_there_and_on_a_cpu_not() -> None:
    fact = _mapped()
    del fact["mapped"]["libnccl"], fact["mapped"]["libcudart"]
    found = _decide(libraries.CHECKS, "S1.libraries", fact, "gpu")
    assert found.detail.startswith("libnccl, libcudart not mapped")
    assert _decide(libraries.CHECKS, "S1.libraries", fact, "rehearsal-cpu").ok


def test_the_copies_of_the_environment_are_found(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    for name in ("torch/lib/libc10.so", "nvidia/nccl/lib/libnccl.so.2"):
        (packages / name).parent.mkdir(parents=True)
        (packages / name).touch()
    maps = tmp_path / "maps"
    lines = [f"7f00-7f10 r-xp 0 08:01 1 {packages}/torch/lib/libc10.so"]
    maps.write_text("\n".join([*lines, "7f10-7f20 r-xp 0 08:01 2 /usr/lib/libnccl.so.2"]))
    fact = libraries.read(maps, str(tmp_path))
    assert fact["own"]["libnccl"] == [str(packages / "nvidia/nccl/lib/libnccl.so.2")]
    found = _decide(libraries.CHECKS, "S1.library_paths", fact, "rehearsal-cpu")
    assert "libnccl is taken from /usr/lib/libnccl.so.2" in found.detail


def test_a_mapped_library_has_to_be_the_one_of_its_wheel(tmp_path: Path) -> None:
    """Its size may be right: what is loaded has its digest in the journal, and is compared."""
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    names = ("torch/lib/libc10.so", "torch/lib/libtorch_cpu.so", "torch/lib/libtorch_python.so")
    (packages / "torch/lib").mkdir(parents=True)
    (packages / "torch-2.0.dist-info").mkdir()
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"as it was").digest()).decode().rstrip("=")
    rows = [f"{name},sha256={digest},9\n" for name in names]
    (packages / "torch-2.0.dist-info/RECORD").write_text("".join(rows))
    maps = tmp_path / "maps"
    maps.write_text("".join(f"7f00-7f10 r-xp 0 08:01 1 {packages}/{name}\n" for name in names))
    for name, content in zip(names, (b"as it was", b"as it was", b"as IT was"), strict=True):
        (packages / name).write_bytes(content)
    fact = libraries.read(maps, str(tmp_path), digests=True)
    kept = fact["files"][str(packages / names[0])]
    assert kept["sha256"] == hashlib.sha256(b"as it was").hexdigest() == kept["recorded"]
    found = _decide(libraries.CHECKS, "S1.library_paths", fact, "rehearsal-cpu")
    assert not found.ok
    assert f"{names[2]} is not the file that its wheel brought" in found.detail
    (packages / names[2]).write_bytes(b"as it was")
    fact = libraries.read(maps, str(tmp_path), digests=True)
    assert _decide(libraries.CHECKS, "S1.library_paths", fact, "rehearsal-cpu").ok


_SERVER = {"error": None, "threads": ["pt_tcpstore_uv"], "returned": "test"}


@pytest.mark.parametrize(
    ("changes", "ok", "words"),
    [
        ({}, True, "pt_tcpstore_uv"),
        ({"error": "built without libuv support"}, False, "built without libuv support"),
        ({"threads": ["pt_tcpstore"]}, False, "served by these threads: pt_tcpstore"),
        ({"threads": []}, False, "threads: none"),
        ({"returned": ""}, False, "returned '' for 'test'"),
    ],
)
def test_a_store_is_judged(changes: dict[str, Any], ok: bool, words: str) -> None:
    found = _decide(libuv.CHECKS, "S2.libuv", {**_SERVER, **changes}, "gpu")
    assert found.ok is ok
    assert words in found.detail


_OOM = "[   99.1] Out of memory: Killed process 4711 (python) total-vm:1kB"
_FAULT = "[   99.2] pt_main_thread[4711]: segfault at 0 ip 00007f sp 00007f error 4 in libc.so"
_MCE = "[   99.3] mce: [Hardware Error]: Machine check events logged"


@pytest.mark.parametrize(
    ("lines", "status", "words"),
    [
        ([], "pass", "0 new lines"),
        (["[ 1.0] eth0: link up"], "pass", "1 new lines, none about this test"),
        ([_OOM], "fail", "ran out of memory and killed process 4711"),
        ([_FAULT], "fail", "segmentation fault of process 4711"),
        ([_OOM.replace("4711", "1")], "pass", "none about this test"),
        ([_MCE], "warn", "hardware error"),
        (None, "skip", "cannot be read (no permission)"),
    ],
)
def test_the_kernels_log_is_judged(lines: list[str] | None, status: str, words: str) -> None:
    fact = after.kernel_fact(lines, "no permission", {4711})
    found = _decide(after.CHECKS, "S5.kernel_log", fact, "gpu")
    assert _status(found) == status
    assert words in found.detail


@pytest.mark.parametrize(
    ("check", "fact", "status", "words"),
    [
        ("S5.leftovers", [], "pass", "no process is left"),
        ("S5.leftovers", [5, 6], "fail", "left processes 5, 6"),
        ("S5.shared_files", [], "pass", ""),
        ("S5.shared_files", ["nccl-a", "nccl-b"], "warn", "rm /dev/shm/nccl-a /dev/shm/nccl-b"),
    ],
)
def test_leftovers_are_judged(check: str, fact: Any, status: str, words: str) -> None:
    found = _decide(after.CHECKS, check, fact, "gpu")
    assert _status(found) == status
    assert words in found.detail


def test_only_new_files_that_no_process_has_open_are_abandoned(tmp_path: Path) -> None:
    for name in ("old", "new", "open"):
        (tmp_path / name).touch()
    with (tmp_path / "open").open():
        assert after.abandoned(["old"], tmp_path) == ["new"]
    assert after.abandoned(["old"], tmp_path) == ["new", "open"]


def _journalctl(directory: Path, script: str) -> dict[str, str]:
    program = directory / "journalctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{directory}:{os.environ['PATH']}"}


def test_the_journal_is_read_from_its_cursor_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """case "$*" in
*--show-cursor*) echo '[ 1.0] before'; echo '-- cursor: s=1;i=2;b=3' ;;
*'--after-cursor=s=1;i=2;b=3'*) echo '[ 2.0] a'; echo '[ 3.0] b' ;;
*) exit 1 ;;
esac"""
    monkeypatch.setenv("PATH", _journalctl(tmp_path, script)["PATH"])
    cursor = kernel_log.mark()
    assert (cursor.source, cursor.journal) == ("journal", "s=1;i=2;b=3")
    assert kernel_log.since(cursor) == ["[ 2.0] a", "[ 3.0] b"]


def test_who_may_read_neither_log_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1"
    monkeypatch.setenv("PATH", _journalctl(tmp_path, script)["PATH"])
    monkeypatch.setattr(kernel_log, "_KMSG", str(tmp_path / "kmsg"))
    cursor = kernel_log.mark()
    assert cursor.source is None
    assert "insufficient permissions" in cursor.reason
    assert "No such file or directory" in cursor.reason
    assert kernel_log.since(cursor) is None


def test_the_kernels_own_buffer_gives_one_record_a_read() -> None:
    reader, writer = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)  # one packet a read, as /dev/kmsg
    try:
        os.write(writer, b"6,1,100,-;eth0: link up\n SUBSYSTEM=net\n")
        os.write(writer, b"4,2,200,-;NVRM: Xid (PCI:0000:01:00): 79; GPU has fallen off\n")
        assert kernel_log._rest_of(reader) == [
            "eth0: link up",
            "NVRM: Xid (PCI:0000:01:00): 79; GPU has fallen off",
        ]
        assert kernel_log._rest_of(reader) == []
    finally:
        os.close(reader)
        os.close(writer)
