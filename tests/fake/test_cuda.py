"""The stages cuda, libcuda and preflight in pyinfra's real prepare and execute."""

from __future__ import annotations

from typing import Any

import pytest
from fake_host import FakeHost, FakeRun
from gpu_host import LIB, VERSION, GpuHost, GpuRun, bare_gpu_host
from proven_host import proven_host

from pyinfra_gpu.engine import proof
from pyinfra_gpu.stages.files import File
from pyinfra_gpu.stages.libcuda import findings as drift
from tasks.stages import cuda, libcuda, preflight

INSTALL, CHOOSE, COMPILE = (
    "CUDA | Install the CUDA toolkit",
    "CUDA | Set the cuda alternative",
    "CUDA | Verify nvcc",
)
LINK, LOAD = (
    "libcuda | Update libcuda links and cache",
    "libcuda | Verify that libcuda loads",
)
FILE = f"{LIB}/libcuda.so.{VERSION}"


def run_of(*hosts: FakeHost) -> FakeRun:
    return GpuRun(*hosts, tasks=(preflight, cuda, libcuda))


def dev(row: str) -> dict[str, list[str]]:
    """The links of a healthy host, but for libcuda.so."""
    kind, _, rest = row.partition(" ")
    return {
        "libcuda.links": [
            f"{kind} {LIB}/libcuda.so => {rest or '- => -'}",
            f"link {LIB}/libcuda.so.1 => libcuda.so.{VERSION} => {FILE}",
        ]
    }


def test_a_bare_host_is_to_get_the_toolkit_and_both_proofs_and_a_plan_runs_nothing() -> None:
    run = run_of(bare_gpu_host()).prepare()
    assert run.changing("ws1") == [INSTALL, COMPILE, LOAD]
    assert not any("apt-get" in command or "ln -s" in command for command in run.commands("ws1"))


def executed(host: GpuHost) -> str:
    """What is run on a host that never changes: up to the first verification, which fails."""
    healthy = proven_host(name="ws2")  # pyinfra ends a run by an exception where no host is left
    return "\n".join(run_of(host, healthy).prepare().execute().commands("ws1"))


def test_the_toolkit_is_asked_for_by_its_own_name_and_nothing_that_brings_a_driver() -> None:
    text = executed(bare_gpu_host(reported={"driver.nouveau": False}))
    assert "cuda-toolkit-13-0" in text
    words = text.replace("'", " ").split()
    assert not {"cuda", "cuda-13-0", "cuda-drivers"} & {word.rstrip(";") for word in words}


MOVED = dict.fromkeys(("cuda.link", "cuda.alternative"), "/usr/local/cuda-13.1")
CHOSEN = "choose.sh /usr/local/cuda /usr/local/cuda-13.0 130"
LINKS, SONAME = f"links.sh {LIB}/libcuda.so.1", f"{LIB}/libcuda.so.1"
REINSTALLED = f"Inst libcuda1 [{VERSION}-1] ({VERSION}-1 NVIDIA CUDA:x [amd64])"


RUNS: dict[str, tuple[GpuHost, list[str]]] = {
    "a declared version is asked for exactly": (
        proven_host(data={"cuda_version": "13.0.2"}), ["cuda-toolkit-13-0=13.0.2-*"],
    ),
    "gone files come back with their packages, after an interrupted dpkg is finished": (
        proven_host(
            reported={
                "cuda.missing": ["bin/ptxas"],
                "packages.half_configured": ["cuda-nvcc-13-0"],
            },
        ),
        ["dpkg --force-confold --configure -a", "install --reinstall cuda-nvcc-13-0"],
    ),
    "the alternative is set": (proven_host(reported=MOVED), [f"{CHOSEN} ''"]),
    "a link by hand is kept": (proven_host(reported={"cuda.alternative": None}), [f"{CHOSEN} 1"]),
    "a link of ours goes to the soname beside it": (
        proven_host(reported=dev("link libcuda.so.570 => -")),
        [f"dpkg-query -S {LIB}/libcuda.so ", f"{LINKS} {LIB}/libcuda.so libcuda.so.1"],
    ),
    "a link that belongs to a package comes back with it, which is held again": (
        proven_host(
            reported=dev(f"link {FILE} => {FILE}"),
            responses={
                "dpkg-query -S": {"stdout": [f"libcuda1:amd64: {LIB}/libcuda.so"]},
                "--simulate": {"stdout": [REINSTALLED, "Hold libcuda1", "Hold dkms", "Done"]},
            },
        ),
        ["install --reinstall libcuda1:amd64", f" 'libcuda1 {VERSION}-1\n' libcuda1 env "],
    ),
    "what stands in the way is kept": (
        proven_host(reported=dev(f"file - => {LIB}/libcuda.so")),
        [f"set_aside.sh {LIB}/libcuda.so", f"{LINKS} {LIB}/libcuda.so libcuda.so.1"],
    ),
    "the declared link in the toolkit is absolute and without a version": (
        proven_host(data={"libcuda_toolkit_link": True}),
        [f"{LINKS} /usr/local/cuda-13.0/lib64/libcuda.so {SONAME}"],
    ),
    "the proof of nvcc gets what is to be proven": (
        proven_host(data={"rehearsal": True}, reported={"cuda.proof": None}),
        [
            '"work": "/opt/pyinfra-gpu/state/cuda.work", "compiler": "g++"',
            '"toolkit": "/usr/local/cuda-13.0", "release": "13.0", "archs": [120]',
            "write.sh /opt/pyinfra-gpu/proofs/cuda.json",
        ],
    ),
    "that of libcuda, too": (
        proven_host(reported={"libcuda.proof": None}),
        [f'"version": "{VERSION}", "owned": true, "compiler": "gcc"'],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", RUNS)
def test_what_is_run(what: str) -> None:
    host, parts = RUNS[what]
    text, place = executed(host), 0
    for part in parts:
        place = text.index(part, place)


def test_a_proof_is_noted_with_the_state_in_which_it_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host, files = proven_host(), list[File]()
    spec, record = host.spec(), host.record()
    monkeypatch.setattr(proof, "write", lambda *words: files.append(words[1]))
    assert len([*proof.run("libcuda", spec, record, "x", drift.state(spec, record))]) == 2
    (file,) = files
    assert file.path == spec.paths.libcuda_proof
    for gcc, found in (("12.2.0", []), ("13.1.0", [": gcc changed since the last proof"])):
        reported = {"libcuda.proof": file.content.decode(), "cuda.gcc": gcc}
        judged = drift.judge(spec, proven_host(reported=reported).record())
        assert [
            each.found.removeprefix("not verified that programs load libcuda") for each in judged
        ] == found


def test_a_dangling_link_holds_nothing_that_is_to_be_kept() -> None:
    assert "set_aside" not in executed(proven_host(reported=dev("link libcuda.so.570 => -")))


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        ({}, False),
        ({"cuda.missing": ["bin/ptxas"]}, True),
        ({"packages.installed": {}}, True),
    ],
)
def test_somebodys_apt_is_waited_for_only_where_ours_has_something_to_do(
    changes: dict[str, Any], waits: bool
) -> None:
    held = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 9 (apt-get)"
    host = proven_host(
        data={"preflight_apt_wait_s": 0},
        reported={"packages.lock_holder": "pid 9 (apt-get)", **changes},
        responses={"apt-get check": {"success": False, "stdout": [], "stderr": [held]}},
    )
    run = run_of(host, proven_host(name="ws2")).prepare()
    assert "Preflight | Check requirements" not in run.changing("ws1")
    run.execute()
    assert run.failed() == ({"ws1"} if waits else set())
