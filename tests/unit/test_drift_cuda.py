"""Each way in which toolkit and compiler differ from what is declared, with its near misses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpu_host import bare_gpu_host
from proven_host import changed, marked, proofs

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.stamps import outdated
from pyinfra_gpu.stages.cuda import findings as cuda

HOME = "/usr/local/cuda-13.0"
TOOLKIT = ["cuda-toolkit-13-0 13.0.3-1 0 1", "cuda-nvcc-13-0 13.0.88-1 0 1"]
MISSING, DIFFERS = "not-installed", "toolkit-differs"
LINK, SHELL, UNPROVEN = "link-differs", "shell-path", "unproven"
NO_LINK: dict[str, str | None] = {"cuda.link": None, "cuda.alternative": None}
Lists = dict[str, list[str]]
NONE = {"cuda.nvcc": None, **NO_LINK, "cuda.toolkits": [], "nvidia.packages": []}


def packages(*rows: str) -> Lists:
    return {"nvidia.packages": list(rows)}


def lost(release: str) -> Lists:
    file = f"/usr/local/cuda-{release}/lib64/libcublas.so"
    return {"nvidia.lost": [f"libcublas-{release.replace('.', '-')} gone {file}"]}


CONFIGURATION = {
    "nvidia.lost": ["cuda-toolkit-config-common gone /etc/ld.so.conf.d/000_cuda.conf"],
}


# What changes the compiler, or a package of the release, is proven again as well.
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "nothing changed": ({}, ""),
    "another toolkit stands beside it": ({"cuda.toolkits": ["13.0", "13.1"]}, ""),
    "the alternative ends in a slash": ({"cuda.alternative": f"{HOME}/"}, ""),
    "its own nvcc is on PATH": ({"cuda.nvcc_on_path": f"{HOME}/bin/nvcc"}, ""),
    "the version is the declared one": ({"cuda_version": "13.0.3"}, ""),
    "none is wanted, and none is there": (
        {**NONE, "cuda_toolkit": False, "cuda.gcc": "16.1.0"}, "",
    ),
    "no toolkit at all": ({**NONE, "cuda.missing": ["bin/nvcc"]}, f"{MISSING} {UNPROVEN}"),
    "only the runtime of the release": (
        packages("cuda-cudart-13-0 13.0.96-1 0 1"), f"{MISSING} {UNPROVEN}",
    ),
    "of no package": (packages(), f"{DIFFERS}! {UNPROVEN}"),
    "another version than the declared one": ({"cuda_version": "13.0.2"}, DIFFERS),
    "a file is gone": ({"cuda.missing": ["bin/ptxas"]}, DIFFERS),
    "the whole folder is gone": (
        {
            "cuda.nvcc": None, "cuda.link": "/etc/alternatives/cuda", "cuda.missing": ["bin/nvcc"],
            "cuda.toolkits": [],
        },
        f"{DIFFERS} {UNPROVEN}",
    ),
    "a package is half installed": (
        packages(TOOLKIT[0], "cuda-nvcc-13-0 13.0.88-1 0 0"), DIFFERS,
    ),
    "its folder is root's alone": ({"cuda.nvcc": None}, f"{DIFFERS}! {UNPROVEN}"),
    "a library of it is gone": (lost("13.0"), DIFFERS),
    "a library of another toolkit is gone": (lost("12.9"), ""),
    "the loader is not told any more where it is": (CONFIGURATION, DIFFERS),
    "the alternative was moved": (
        dict.fromkeys(("cuda.link", "cuda.alternative"), "/usr/local/cuda-13.1"), LINK,
    ),
    "there is no plain path": (NO_LINK, LINK),
    "the plain path was removed": ({"cuda.link": None}, LINK),
    "a link by hand to the same toolkit": ({"cuda.alternative": None}, LINK),
    "a link by hand that dangles": ({**NO_LINK, "cuda.link": "/opt/cuda"}, LINK),
    "a folder is in the way": ({"cuda.link": "/usr/local/cuda"}, LINK),
    "another nvcc is first on PATH": ({"cuda.nvcc_on_path": "/usr/bin/nvcc"}, f"{SHELL}!"),
    "one whose name begins alike": (
        {"cuda.nvcc_on_path": "/usr/local/cuda-13.01/bin/nvcc"}, f"{SHELL}!",
    ),
    "gcc is another, which preflight compares with what nvcc takes": (
        {"cuda.gcc": "16.1.0"}, UNPROVEN,
    ),
    "there is no gcc": ({"cuda.gcc": None}, UNPROVEN),
    "never proven": ({"cuda.proof": None}, UNPROVEN),
    "other GPUs are to be compiled for": (
        {"cuda_archs": ["9.0"], **proofs({**bare_gpu_host().data})}, UNPROVEN,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_difference_is_named_and_a_near_miss_is_not(name: str) -> None:
    changes, expected = CASES[name]
    host = changed(changes)
    found = cuda.judge(host.spec(), host.record())
    assert all(each.found and each.expected and each.action for each in found)
    assert all(each.command for each in found if each.effect == "report")
    assert marked(found) == expected


def test_a_bare_host_lacks_the_toolkit_and_a_cpu_host_nothing() -> None:
    host = bare_gpu_host()
    spec, record = host.spec(), host.record()
    assert [each.id for each in cuda.judge(spec, record)] == [
        *("cuda.not-installed", "cuda.unproven"),
    ]
    cpu = bare_gpu_host(data={"stack": "cpu-torch2.13"})
    without = cpu.spec().but(accelerator="cpu")
    assert (cuda.judge(without, record), cuda.judge.unread(without, record)) == ([], ())


UNPACKED, HALF_NVCC = "cuda-cccl-13-0 13.0.85-1 0 0", "cuda-nvcc-13-0 13.0.88-1 0 0"
NVVM, OTHERS = "libnvvm-13-0 13.0.88-1 0 1", ["libcublas-13-1 1 0 0", "cuda-nvcc-13-1 1 0 0"]
CUDA13, NVCC = "cuda-toolkit-13-0", "cuda-nvcc-13-0"
# What is installed, and what is installed again.
ASKED: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({}, [], []),
    (NONE, [CUDA13], []),
    ({"cuda_version": "13.0.2"}, [f"{CUDA13}=13.0.2-*"], []),
    (packages(), [], []),  # a toolkit of somebody's
    (packages(UNPACKED, *OTHERS), [CUDA13], ["cuda-cccl-13-0"]),
    (packages(TOOLKIT[0], HALF_NVCC, *OTHERS), [], [NVCC]),
    (lost("13.0"), [], ["libcublas-13-0"]),
    (CONFIGURATION, [], ["cuda-toolkit-config-common"]),
    # nvcc's own package even if it was forced off, and none that nvcc is not made of
    (
        {**packages(TOOLKIT[0], NVVM, *OTHERS), "cuda.missing": ["bin/nvcc"]},
        *([], [NVCC, "libnvvm-13-0"]),
    ),
]


@pytest.mark.parametrize(("changes", "installed", "again"), ASKED)
def test_what_is_asked_for(changes: dict[str, Any], installed: list[str], again: list[str]) -> None:
    host = changed(changes)
    spec, record = host.spec(), host.record()
    assert (cuda.to_install(spec, record), [*cuda.damaged(spec, record)]) == (installed, again)


BEFORE = {"gcc": "12.2.0", "the toolkit": ["a 1", "b 1"], "cuda_archs": ["9.0"]}


def kept(**changes: object) -> str:
    return json.dumps({"status": "pass", "state": BEFORE, **changes})


@pytest.mark.parametrize(
    ("text", "changes", "reported"),
    [
        (None, {}, "never tried on this host"),
        (Unknown("no permission"), {}, "the proof cannot be read (no permission)"),
        ("[1]", {}, "the proof is not readable"),
        (kept(status="fail"), {}, "the proof is not readable"),
        (kept(), {}, None),
        (kept(state={**BEFORE, "more": 1}), {}, "something it depends on changed"),
        (kept(), {"gcc": "13.1.0"}, "gcc changed"),
        (kept(), {"gcc": "1", "the toolkit": ["b 1", "a 1"]}, "gcc and the toolkit changed"),
    ],
)
def test_a_proof_holds_for_its_state_and_what_changed_since_is_named(
    text: str | Unknown | None, changes: dict[str, object], reported: str | None
) -> None:
    said = outdated(text, {**BEFORE, **changes})
    assert said == (
        f"{reported} since the last proof" if reported and "changed" in reported else reported
    )
