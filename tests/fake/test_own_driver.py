"""Ubuntu's own driver in pyinfra's real prepare and execute."""

from __future__ import annotations

from typing import Any

from gpu_host import GpuHost, GpuRun
from own_driver_host import MODULES, NOBLE_KERNEL, NOBLE_NEXT, SIGNED, signed_rows, ubuntu
from test_driver import Told, answer

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


def bare(host: GpuHost) -> GpuHost:
    gone = ("driver.loaded", "driver.version_line", "driver.on_disk", "driver.module")
    host.plain |= dict.fromkeys((*gone, "driver.libcuda", "driver.libml"))
    host.lists |= {"nvidia.package": [], "libcuda.cache": []}
    return host


def executed(host: GpuHost, **responses: Any) -> tuple[GpuRun, Told, list[str]]:
    host.responses |= responses
    made = GpuRun(host, GpuHost(name="ws2"), tasks=(driver,))
    told = Told(made)
    made.prepare().execute()
    return made, told, made.executed("ws1")


def test_a_healthy_host_is_looked_at_once_and_left_alone() -> None:
    made = GpuRun(ubuntu(), tasks=(driver,)).prepare()
    assert made.changing("ws1") == []
    assert made.looks("ws1") == 1
    assert made.execute().commands("ws1") == []


def installing(*rows: str) -> tuple[GpuRun, Told, list[str]]:
    offer = {"apt-cache madison": {"stdout": ON_OFFER}, "--simulate": answer(*rows)}
    return executed(bare(ubuntu()), **offer)


def test_the_newest_version_that_all_parts_have_is_asked_for() -> None:
    name = "libnvidia-compute-580-server"
    _, _, commands = installing(f"Inst {name} ({OLDER}-0ubuntu0.24.04.1 {LABEL})")
    (install, *_) = (each for each in commands if "Pre-Install-Pkgs" in each)
    assert f"nvidia-utils-580-server={OLDER}-*" in install
    assert f"{MODULES}{NOBLE_KERNEL}" in install
    assert f"={SIGNED}" not in install


def test_without_a_solution_or_from_elsewhere_nothing_is_installed() -> None:
    made, told, commands = installing("E: Unable to correct problems, held broken packages.")
    assert made.failed() == {"ws1"}
    assert "from the distribution's archive" in told.problem
    assert "nothing was changed" in told.problem
    assert not [each for each in commands if "Pre-Install-Pkgs" in each]
    _, told, commands = installing(
        f"Inst nvidia-utils-580-server ({OLDER}-1 NVIDIA CUDA:x [amd64])"
    )
    assert "would come from another origin (NVIDIA CUDA)" in told.problem
    assert not [each for each in commands if "Pre-Install-Pkgs" in each]


def test_nvidias_repository_is_not_needed() -> None:
    host = bare(ubuntu(texts=dict.fromkeys((files.PREFERENCES, files.UNATTENDED))))
    made, _, commands = executed(host)
    assert made.changing("ws1")[0] == "Driver | Add NVIDIA's apt repository"
    text = "\n".join(commands)
    assert files.UNATTENDED in text and files.PREFERENCES in text
    assert "cuda-keyring" not in text and files.SOURCES not in text


def test_the_module_of_the_next_kernel_is_the_distributions() -> None:
    following = {
        "kernel.installed": [NOBLE_KERNEL, NOBLE_NEXT],
        "kernel.module": [f"{NOBLE_NEXT} -"],
    }
    module = f"{MODULES}{NOBLE_NEXT}"
    simulated = answer(f"Inst {module} (6.8.0-151.151 {LABEL})")
    _, _, commands = executed(ubuntu(lists=following), **{"--simulate": simulated})
    (install, *_) = (each for each in commands if "Pre-Install-Pkgs" in each)
    assert f" {module}" in install and f"nvidia-utils-580-server={SIGNED}-*" in install
    assert "generic-6.8" in install


def test_a_signed_module_whose_file_is_gone_comes_back_with_its_package() -> None:
    host = ubuntu(
        plain={"driver.on_disk": None}, lists={"nvidia.package": signed_rows(NOBLE_KERNEL)}
    )
    module = f"{MODULES}{NOBLE_KERNEL}"
    same = f"[6.8.0-149.149] (6.8.0-149.149 {LABEL})"
    _, _, commands = executed(host, **{"--simulate": answer(f"Inst {module} {same}")})
    text = "\n".join(commands)
    assert f"install --reinstall {module}" in text
    assert "dkms" not in text


def test_a_rule_in_somebodys_file_stops_the_host_with_its_name() -> None:
    made, told, commands = executed(
        ubuntu(plain={"driver.module": "/bin/false /etc/modprobe.d/mine.conf"})
    )
    assert made.failed() == {"ws1"}
    assert "/etc/modprobe.d/mine.conf" in told.problem
    assert not [each for each in commands if "--reinstall" in each]
