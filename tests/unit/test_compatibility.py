"""What refusals say, word for word: found, required, what to change."""
# ruff: noqa: E501 (sentences are tested whole)

from __future__ import annotations

from typing import Any

import pytest

from pyinfra_gpu.compatibility import HostFacts, check_host, resolve
from pyinfra_gpu.spec import SpecError

HOST: dict[str, Any] = {
    "python": "3.12.3",
    "gcc": 13,
    "architecture": "x86_64",
    "driver_loaded": "580.95.05",
    "compute_capabilities": (),
    "open_modules": None,
    "glibc": "2.39",
}

BY_DATA = [
    (
        {"gpu_model": "RTX 5090", "pytorch_build": "cu126"},
        "pytorch_build = 'cu126' has no code for RTX 5090 (compute capability 12.0); allowed: compute capabilities 5.0, 6.0, 7.0, 7.5, 8.0, 8.6, 9.0 with it; fix: set pytorch_build = 'cu130'",
    ),
    (
        {"gpu_model": "V100"},
        "driver_modules = 'open' does not bring up V100 (compute capability 7.0), which is older than Turing; allowed: 'proprietary' for GPUs older than Turing; fix: set driver_modules = 'proprietary'",
    ),
    (
        {"gpu_model": "GTX 1080 Ti", "driver_branch": 595, "driver_modules": "proprietary"},
        "driver_branch = 595 no longer serves GTX 1080 Ti (compute capability 6.1); allowed: branch 580 or older for this GPU; fix: set stack = 'r580-cu126' and remove driver_branch",
    ),
    (
        {"stack": "r570-cu128", "pytorch_version": "2.14.1", "pytorch_build": "cu130"},
        "pytorch_build = 'cu130' brings CUDA 13.0, which does not start on branch 570; allowed: driver 580 or newer with CUDA 13.x builds; fix: set stack = 'r580-cu130' and remove pytorch_version and pytorch_build",
    ),
    (
        {"pytorch_build": "cu132"},
        "pytorch_build = 'cu132' is of CUDA 13.2, newer than branch 580 translates code of (CUDA 13.0), and NCCL of such a build did not start; allowed: builds up to CUDA 13.0 with branch 580; fix: set pytorch_build = 'cu130'",
    ),
    (
        {"host_compiler": "gcc-16"},
        "host_compiler = 'gcc-16' is too new for CUDA 13.0; allowed: gcc 6 to 15 with CUDA 13.0; fix: set host_compiler = 'gcc-15'",
    ),
    (
        {"pytorch_version": "2.13.7"},
        "pytorch_version = '2.13.7' is not a torch release this project knows; allowed: 2.6.0, 2.7.0, 2.7.1, 2.8.0, 2.9.0, 2.9.1, 2.10.0, 2.11.0, 2.12.0, 2.12.1, 2.13.0, 2.14.0, 2.14.1, 2.15.0; fix: set pytorch_version = '2.13.0'",
    ),
    (
        {"pytorch_version": "2.10.0", "pytorch_build": "cu132"},
        "pytorch_build = 'cu132' is not published for torch 2.10.0; allowed: cpu, cu126, cu128, cu130 with torch 2.10.0; fix: set pytorch_build = 'cu130'",
    ),
    (
        {"gpu_count": 0},
        "gpu_count = 0 leaves the NVIDIA stack r580-cu130 without a GPU; allowed: 1 to 16 with this stack; fix: set gpu_count to the number of GPUs, or stack = 'cpu-torch2.13'",
    ),
    (
        {"gpu_model": "RTX 5090", "cuda_release": "12.6", "cuda_version": "12.6.3"},
        "cuda_release = '12.6' does not yet make code for RTX 5090 (compute capability 12.0); allowed: compute capability 9.0 or older with CUDA 12.6; fix: set cuda_release = '13.0'",
    ),
    (
        {"cuda_archs": ["7.0", "12.0"]},
        "cuda_archs = ['7.0', '12.0'] holds 7.0, for which CUDA 13.0 makes no code; allowed: 7.5, 8.0, 8.6, 8.9, 9.0, 10.0, 10.3, 11.0, 12.0, 12.1 with CUDA 13.0; fix: set cuda_archs = ['12.0']",
    ),
    (
        {"gpu_model": "GH200", "stack": "r580-cu128"},
        "pytorch_build = 'cu128' is not what the package index serves for torch 2.9.1 on aarch64: that is cpu; allowed: an index of cu128 for aarch64; fix: set pytorch_index_url = 'https://download.pytorch.org/whl/cu128'",
    ),
    (
        {"driver_repository_url": "https://mirror.example.org/cuda/repos/debian13/x86_64"},
        "driver_branch = 580 is not in NVIDIA's repository for debian13; allowed: branch 590 or newer on debian13; fix: set stack = 'r595-cu132'",
    ),
]

FROM_DEBIAN_13 = {
    "driver_loaded": None,
    "distribution": "debian 13",
    "due": frozenset({"driver", "toolkit"}),
}

BY_HOST = [
    (
        {},
        FROM_DEBIAN_13,
        "driver_branch = 580 is not in NVIDIA's repository for debian13; allowed: branch 590 or newer on debian13; fix: set stack = 'r595-cu132', or install the host anew with one of ubuntu 22.04, ubuntu 24.04, debian 12",
    ),
    (
        {"driver_version": "580.95.05"},
        {
            "driver_loaded": None,
            "distribution": "ubuntu 26.04",
            "due": frozenset({"toolkit", "driver"}),
        },
        "driver_branch = 580 is not in NVIDIA's repository for ubuntu2604; allowed: branch 595 or newer on ubuntu2604; fix: set stack = 'r595-cu132' and remove driver_version, or install the host anew with one of ubuntu 22.04, ubuntu 24.04, debian 12",
    ),
    (
        {"driver_branch": 595},
        FROM_DEBIAN_13,
        "cuda_release = '13.0' is not in NVIDIA's repository for debian13; allowed: CUDA 13.1 or newer on debian13; fix: set stack = 'r595-cu132' and remove driver_branch, or install the host anew with one of ubuntu 22.04, ubuntu 24.04, debian 12",
    ),
    (
        {},
        {"gcc": 16},
        "host_compiler = None leaves the host its own gcc 16, which is too new for CUDA 13.0; allowed: gcc 6 to 15 with CUDA 13.0; fix: set host_compiler = 'gcc-15'",
    ),
    (
        {},
        {"python": "3.9.2"},
        "pytorch_python = 'python3' is Python 3.9.2, too old for torch 2.14.1; allowed: Python 3.10 to 3.14 with torch 2.14.1; fix: install Python 3.10 or newer on the host and set pytorch_python to it",
    ),
    (
        {},
        {"driver_loaded": "570.124.06"},
        "driver_branch = 580 is declared, but the loaded driver 570.124.06 is too old for CUDA 13.0; allowed: driver 580.65.06 or newer with CUDA 13.0; fix: install driver branch 580, 580.65.06 or newer, on the host and reboot it",
    ),
    (
        {"driver_modules": "proprietary"},
        {"compute_capabilities": ("10.0",), "open_modules": False},
        "driver_modules = 'proprietary' does not bring up the host's GPU of compute capability 10.0; allowed: 'open' for Blackwell and Grace; fix: set driver_modules = 'open' and install the open modules of branch 580 and reboot the host",
    ),
    (
        {"gpu_model": "RTX 5090"},
        {"compute_capabilities": ("12.0", "8.9")},
        "gpu_model = 'RTX 5090' is declared, which has compute capability 12.0, but the host has a GPU of 8.9; allowed: L40S, L4, RTX 6000 Ada, RTX 4090, RTX 4080; fix: set gpu_model = None, or take the other GPUs out",
    ),
    (
        {"gpu_model": "RTX 5090"},
        {"compute_capabilities": ("8.0",)},
        "gpu_model = 'RTX 5090' is declared, which has compute capability 12.0, but the host has a GPU of 8.0; allowed: A100; fix: set gpu_model = 'A100'",
    ),
    (
        {},
        {"architecture": "riscv64"},
        "pytorch_build = 'cu130' has no wheel for the machine riscv64; allowed: x86_64 or aarch64 with cu130; fix: use a host whose machine is x86_64 or aarch64",
    ),
    (
        {},
        {"architecture": "aarch64", "compute_capabilities": ("7.5",)},
        "pytorch_build = 'cu130' has no code for the host's GPU of compute capability 7.5 on aarch64; allowed: compute capabilities 8.0, 9.0, 10.0, 11.0, 12.0 with it; fix: no stack serves this host: leave it out of the inventory",
    ),
]


@pytest.mark.parametrize(("data", "sentence"), BY_DATA, ids=[str(case[0]) for case in BY_DATA])
def test_what_data_alone_shows_is_said_before_any_host_is_asked(
    data: dict[str, object], sentence: str
) -> None:
    with pytest.raises(SpecError) as caught:
        resolve(data, "lab-1")
    assert str(caught.value) == f"host lab-1: {sentence}"


@pytest.mark.parametrize(
    ("data", "found", "sentence"), BY_HOST, ids=[str(case[0]) for case in BY_HOST]
)
def test_what_a_host_shows_is_said_with_what_was_found_there(
    data: dict[str, object], found: dict[str, Any], sentence: str
) -> None:
    refusals = check_host(resolve(data, "lab-1"), HostFacts(**{**HOST, **found}))
    assert refusals[0] == f"host lab-1: {sentence}"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ({}, {**FROM_DEBIAN_13, "due": frozenset()}),
        ({}, {**FROM_DEBIAN_13, "distribution": None}),
        ({"driver_source": "present", "cuda_toolkit": False}, FROM_DEBIAN_13),
        (
            {"driver_repository_url": "https://mirror.example.org/cuda/repos/debian12/x86_64"},
            FROM_DEBIAN_13,
        ),
        ({"driver_repository_url": "https://mirror.example.org/nvidia"}, FROM_DEBIAN_13),
    ],
    ids=["all is there", "not told", "somebody else's", "another release's", "no known one"],
)
def test_a_repository_is_judged_only_where_something_is_to_come_from_it(
    data: dict[str, object], found: dict[str, Any]
) -> None:
    assert check_host(resolve(data, "lab-1"), HostFacts(**{**HOST, **found})) == []


def test_a_host_without_a_driver_yet_is_not_judged_by_it() -> None:
    facts = HostFacts(**{**HOST, "driver_loaded": None, "gcc": None, "python": None, "glibc": None})
    assert check_host(resolve({"gpu_model": "RTX 5090"}, "lab-1"), facts) == []


@pytest.mark.parametrize("gpu", ["RTX 5090", "H200", "B200", "L4"])
def test_a_throwaway_host_may_run_the_cpu_build_in_place_of_a_simulated_gpu(gpu: str) -> None:
    data = {"gpu_model": gpu, "pytorch_version": "2.13.0", "pytorch_build": "cpu"}
    spec = resolve({**data, "rehearsal": True}, "gpu1")
    capability = spec.gpu.compute_capability
    found = {"compute_capabilities": (capability, capability), "open_modules": True}
    assert check_host(spec, HostFacts(**{**HOST, **found})) == []
    with pytest.raises(SpecError, match="'cpu' cannot use the GPUs of the NVIDIA stack"):
        resolve(data, "gpu1")
