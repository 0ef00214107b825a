"""The distribution's own driver in pyinfra's real prepare and execute."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_host import GpuHost, GpuRun
from own_driver_host import (
    LED,
    MODULES,
    NEWER,
    NOBLE_KERNEL,
    NOBLE_NEXT,
    OPEN,
    SIGNED,
    debian,
    signed_rows,
    ubuntu,
)
from test_driver import Told, answer

from pyinfra_gpu.packages import files
from tasks.driver import driver

DEBIAN, SECURITY = "Debian:12/bookworm [amd64]", "Debian-Security:12/bookworm-security [amd64]"
ON_OFFER = [
    line
    for name in ("nvidia-open-kernel-dkms", "libcuda1", "libnvidia-ml1", "nvidia-smi")
    for line in (
        *((f"{name} | {NEWER}-0+deb12u1 | http://x Packages",) if "open" not in name else ()),
        f"{name} | {OPEN}-1 | http://x Packages",
    )
] + [f"nvidia-alternative | {OPEN}-1 | http://x Packages"]


def bare(host: GpuHost) -> GpuHost:
    gone = ("driver.loaded", "driver.version_line", "driver.on_disk", "driver.module")
    host.plain |= dict.fromkeys((*gone, "driver.libcuda", "driver.libml"))
    host.lists |= {"nvidia.package": [], "nvidia.alternative": [], "libcuda.cache": []}
    return host


def executed(host: GpuHost, **responses: Any) -> tuple[GpuRun, Told, list[str]]:
    host.responses |= responses
    made = GpuRun(host, GpuHost(name="ws2"), tasks=(driver,))
    told = Told(made)
    made.prepare().execute()
    return made, told, made.executed("ws1")


@pytest.mark.parametrize("host", [debian(), ubuntu()], ids=["Debian", "Ubuntu"])
def test_a_healthy_host_is_looked_at_once_and_left_alone(host: GpuHost) -> None:
    made = GpuRun(host, tasks=(driver,)).prepare()
    assert made.changing("ws1") == []
    assert made.looks("ws1") == 1
    assert made.execute().commands("ws1") == []


def test_the_newest_version_that_all_parts_have_is_asked_for() -> None:
    simulated = answer(f"Inst libcuda1 ({OPEN}-1 {DEBIAN})")
    _, _, commands = executed(
        bare(debian()), **{"apt-cache madison": {"stdout": ON_OFFER}, "--simulate": simulated}
    )
    (install, *_) = (each for each in commands if "Pre-Install-Pkgs" in each)
    assert f"nvidia-open-kernel-dkms={OPEN}-*" in install
    assert f"nvidia-alternative={OPEN}-*" in install
    assert " nvidia-persistenced" in install
    assert NEWER not in install and "libnvidia-cfg1" not in install


def test_its_archive_is_completed_and_nvidias_is_not_needed() -> None:
    host = bare(debian(texts=dict.fromkeys((files.PREFERENCES, files.UNATTENDED, files.ARCHIVE))))
    made, _, commands = executed(host)
    assert made.changing("ws1")[0] == "Driver | Trust NVIDIA's repository"
    text = "\n".join(commands)
    order = [text.index(path) for path in (files.PREFERENCES, files.ARCHIVE)]
    assert order == sorted(order)
    assert "apt-get update" in text
    assert "cuda-keyring" not in text and files.SOURCES not in text


def test_a_version_for_which_there_is_no_solution_is_not_tried_twice() -> None:
    none = answer("E: Unable to correct problems, you have held broken packages.")
    made, told, commands = executed(
        bare(debian()), **{"apt-cache madison": {"stdout": ON_OFFER}, "--simulate": none}
    )
    assert made.failed() == {"ws1"}
    assert "from the distribution's archive" in told.problem
    assert "nothing was changed" in told.problem
    assert not [each for each in commands if "Pre-Install-Pkgs" in each]


def test_a_driver_that_would_come_from_elsewhere_is_refused() -> None:
    simulated = answer(f"Inst libcuda1 ({OPEN}-1 NVIDIA CUDA:x [amd64])")
    _, told, _ = executed(
        bare(debian()), **{"apt-cache madison": {"stdout": ON_OFFER}, "--simulate": simulated}
    )
    assert "would come from another origin (NVIDIA CUDA)" in told.problem


def test_the_module_of_the_next_kernel_is_the_distributions() -> None:
    host = ubuntu(
        lists={
            "kernel.installed": [NOBLE_KERNEL, NOBLE_NEXT],
            "kernel.module": [f"{NOBLE_NEXT} -"],
        }
    )
    module = f"{MODULES}{NOBLE_NEXT}"
    simulated = answer(f"Inst {module} (6.8.0-151.151 Ubuntu:24.04/noble [amd64])")
    _, _, commands = executed(host, **{"--simulate": simulated})
    (install, *_) = (each for each in commands if "Pre-Install-Pkgs" in each)
    assert f" {module}" in install and f"nvidia-utils-580-server={SIGNED}-*" in install
    assert "generic-6.8" in install


def test_a_signed_module_whose_file_is_gone_comes_back_with_its_package() -> None:
    host = ubuntu(
        plain={"driver.on_disk": None}, lists={"nvidia.package": signed_rows(NOBLE_KERNEL)}
    )
    module = f"{MODULES}{NOBLE_KERNEL}"
    same = "[6.8.0-149.149] (6.8.0-149.149 Ubuntu:24.04/noble [amd64])"
    _, _, commands = executed(host, **{"--simulate": answer(f"Inst {module} {same}")})
    text = "\n".join(commands)
    assert f"install --reinstall {module}" in text
    assert "dkms" not in text


@pytest.mark.parametrize(
    ("group", "path", "rows"),
    [
        ("glx", "/usr/lib/nvidia", [LED[0], "glx manual /usr/lib/mesa-diverted -"]),
        ("nvidia", "/usr/lib/nvidia/current-open", ["nvidia auto - /usr/bin/x", LED[1]]),
    ],
)
def test_an_alternative_is_chosen_anew(group: str, path: str, rows: list[str]) -> None:
    _, told, commands = executed(debian(lists={"nvidia.alternative": rows}))
    (choice,) = (each for each in commands if "update-alternatives --auto" in each)
    assert f" {group} {path} " in choice
    assert f"the alternative {group}" in told.problem or "does not lead" in told.problem


def test_changed_rules_are_kept_and_come_back_with_their_package() -> None:
    rules = "/etc/nvidia/current-open/nvidia-modprobe.conf"
    host = debian(plain={"driver.module": "nvidia-current /etc/modprobe.d/nvidia.conf"})
    _, _, commands = executed(
        host,
        **{
            "set_aside": {"stdout": [rules]},
            "dpkg-query -S": {"stdout": [f"nvidia-open-kernel-support: {rules}"]},
            "dpkg-query -W": {"stdout": [f"nvidia-open-kernel-support={OPEN}-1"]},
            "madison": {"stdout": [f"nvidia-open-kernel-support | {OPEN}-1 | http://x Packages"]},
            "--simulate": answer(f"Inst nvidia-open-kernel-support [{OPEN}-1] ({OPEN}-1 {DEBIAN})"),
        },
    )
    text = "\n".join(commands)
    assert "--force-confmiss" in text
    assert f"install --reinstall nvidia-open-kernel-support={OPEN}-1" in text


def test_a_rule_in_somebodys_file_stops_the_host_with_its_name() -> None:
    host = debian(plain={"driver.module": "/bin/false /etc/modprobe.d/mine.conf"})
    made, told, commands = executed(host)
    assert made.failed() == {"ws1"}
    assert "/etc/modprobe.d/mine.conf" in told.problem
    assert not [each for each in commands if "--reinstall" in each]
