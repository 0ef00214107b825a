"""Ubuntu's own driver in pyinfra's real prepare and execute."""

from __future__ import annotations

import pytest
from gpu_host import GpuHost, GpuRun
from own_driver_host import MODULES, NOBLE_KERNEL, NOBLE_NEXT, SIGNED, signed_rows, ubuntu
from test_driver import Shown, answer, shown

from pyinfra_gpu.packages import files
from pyinfra_gpu.stacks import catalogue
from tasks.stages import driver

LABEL = "Ubuntu:24.04/noble [amd64]"
OLDER = "580.173.02"
WANTED = catalogue().archives["ubuntu"].driver(580, "open", "compute") or ()
ON_OFFER = [
    f"{name} | {version}-0ubuntu0.24.04.1 | http://x Packages"
    for name in WANTED
    for version in (SIGNED, OLDER)
    if version == OLDER or "utils" not in name
]


NEXT = {"kernel.installed": [NOBLE_KERNEL, NOBLE_NEXT], "kernel.modules": {NOBLE_NEXT: None}}
SAME = f"[6.8.0-149.149] (6.8.0-149.149 {LABEL})"
MADISON = {"apt-cache madison": {"stdout": ON_OFFER}}
COMPUTE = f"Inst libnvidia-compute-580-server ({OLDER}-0ubuntu0.24.04.1 {LABEL})"
GUARDED = "Pre-Install-Pkgs"


def bare(host: GpuHost, *simulated: str) -> GpuHost:
    gone = ("driver.loaded", "driver.open_modules", "driver.on_disk")
    host.reported |= dict.fromkeys((*gone, "driver.libcuda", "driver.libml"))
    host.reported |= {"nvidia.packages": [], "libcuda.cache": []}
    return answering(host, *simulated)


def answering(host: GpuHost, *simulated: str) -> GpuHost:
    host.responses |= {**MADISON, "--simulate": answer(*simulated)} if simulated else {}
    return host


def test_a_healthy_host_is_looked_at_once_and_left_alone() -> None:
    made = GpuRun(ubuntu(), tasks=(driver,)).prepare()
    assert made.changing("ws1") == []
    assert made.looks("ws1") == 1
    assert made.execute().commands("ws1") == []


RUNS: dict[str, Shown] = {
    "the newest version that all parts have": (
        bare(ubuntu(), COMPUTE),
        [GUARDED, f"nvidia-utils-580-server={OLDER}-*", f"{MODULES}{NOBLE_KERNEL}"],
        [f"={SIGNED}"], "",
    ),
    "no solution": (
        bare(ubuntu(), "E: Unable to correct problems, held broken packages."), [], [GUARDED],
        "from the distribution's archive",
    ),
    "a package from elsewhere": (
        bare(ubuntu(), f"Inst nvidia-utils-580-server ({OLDER}-1 NVIDIA CUDA:x [amd64])"),
        [], [GUARDED], "would come from another origin (NVIDIA CUDA)",
    ),
    "NVIDIA's repository is not needed": (
        bare(ubuntu(texts=dict.fromkeys((files.PREFERENCES, files.UNATTENDED)))),
        [files.UNATTENDED, files.PREFERENCES], ["cuda-keyring", files.SOURCES], "",
    ),
    "the module of the next kernel is the distribution's": (
        answering(ubuntu(reported=NEXT), f"Inst {MODULES}{NOBLE_NEXT} (6.8.0-151.151 {LABEL})"),
        [f" {MODULES}{NOBLE_NEXT}", f"nvidia-utils-580-server={SIGNED}-*", "generic-6.8"], [], "",
    ),
    "a signed module whose file is gone": (
        answering(
            ubuntu(
                reported={"driver.on_disk": None, "nvidia.packages": signed_rows(NOBLE_KERNEL)},
            ),
            f"Inst {MODULES}{NOBLE_KERNEL} {SAME}",
        ),
        [f"install --reinstall {MODULES}{NOBLE_KERNEL}"], ["dkms"], "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_what_is_run_and_what_is_said(name: str) -> None:
    shown(*RUNS[name])
