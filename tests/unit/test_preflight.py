"""What refuses a host before anything is written, and what does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fake_host import FakeHost, entry
from gpu_host import DATA, FACTS, URL, VERSION, GpuHost, bare_gpu_host, sources
from proven_host import changed, proven_host

from pyinfra_gpu.packages import files
from pyinfra_gpu.spec import system_files
from pyinfra_gpu.stages import host as whole_host
from pyinfra_gpu.stages.preflight import findings as preflight

DRIVER = ["libcuda1", "libnvidia-ml1", "nvidia-driver-cuda", "nvidia-persistenced"]
DRIVER.append("nvidia-kernel-open-dkms")
UPDATED = [f"{name} 580.105.08-1 1 1" for name in DRIVER]
MIXED = ["libcuda1 580.105.08-1 1 1", *(f"{name} {VERSION}-1 1 1" for name in DRIVER[1:])]
UBUNTUS_FIRMWARE = "nvidia-firmware-580-580.126.20 580.126.20-0ubuntu0.24.04.1 0 1"
DEBIANS_HELPER = "nvidia-kernel-common 20220217+3~deb12u1 0 1"
JOB = {"driver.users": ["pid 812 (python3)", "pid 813 (python3)"]}
PREFIX = "/opt/pyinfra-gpu"

UBUNTU_25 = ("Ubuntu 25.10", "25.10", "ubuntu")
DEBIAN_13 = ("Debian GNU/Linux 13", "13", "debian")


def packages(*rows: str) -> dict[str, list[str]]:
    return {"nvidia.packages": [*rows]}


def system(name: str, version: str | None, id_: str) -> dict[str, Any]:
    return {"system.os_name": name, "system.os_version": version, "system.os_id": id_}


def said(host: FakeHost) -> list[str]:
    spec, record = host.spec(), host.record()  # type: ignore[arg-type]
    unread = [f"{spec.host}: {text}" for text in whole_host.unread(preflight, spec, record)]
    findings = preflight.judge(spec, record)
    assert all(each.stops and each.effect == "report" for each in findings)
    return unread + [each.sentence(spec.host) for each in findings]


WELCOME: dict[str, GpuHost] = {
    "a healthy host": proven_host(),
    "a bare host, nouveau has the cards": bare_gpu_host(),
    "another module is loaded than installed, and jobs run": changed({
        "driver.on_disk": "580.105.08",
        "driver.libcuda": "/usr/lib/x86_64-linux-gnu/libcuda.so.580.105.08",
        "driver.libml": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.105.08", **JOB,
        "nvidia.packages": UPDATED,
    }),
    "packages of mixed versions, and nobody is at work": changed({"nvidia.packages": MIXED}),
    "a module must be built for the next kernel while jobs run": changed({
        **JOB, "kernel.installed": ["6.1.0-30-amd64", "6.1.0-31-amd64"],
    }),
    "the proprietary flavour is loaded and gets replaced": changed({
        "driver.open_modules": False,
        **packages(
            *(f"{name} {VERSION}-1 1 1" for name in DRIVER[:-1]),
            f"nvidia-kernel-dkms {VERSION}-1 1 1",
        ),
    }),
    "what removing Ubuntu's driver left behind, and the driver stays": changed(
        packages(*(f"{name} {VERSION}-1 1 1" for name in DRIVER), UBUNTUS_FIRMWARE),
    ),
    "Secure Boot is on and the key is enrolled": changed({
        "system.secure_boot": True, "driver.mok": True,
    }, bare=True),
    "Secure Boot is on and the loaded module was accepted": changed({
        "system.secure_boot": True, "driver.mok": None,
    }),
    "the declared repository is listed twice": changed(
        sources(
            f"{files.SOURCES}:deb [signed-by={system_files.KEYRING}] {URL}/ /",
            f"/etc/apt/sources.list.d/cuda-debian12-x86_64.list:deb {URL}/ /",
        ),
    ),
    "our own source list is of another release": changed(
        sources(f"{files.SOURCES}:deb http://mirror.example/cuda/repos/debian11/x86_64/ /"),
    ),
    "a .run file's driver that somebody else keeps": changed({
        "driver_source": "present", "driver.runfile": True,
        **packages("cuda-toolkit-13-0 13.0.3-1 0 1"),
    }),
    "a release that NVIDIA's repository does not know, of somebody else's driver": changed({
        "driver_source": "present", **system(*UBUNTU_25),
    }),
    "all is installed that its distribution's repository no longer carries": changed(
        system(*DEBIAN_13),
    ),
    "little shared memory, and neither a test nor a training is declared": changed({
        "storage.shm_mib": 64,
    }),
    "no room on a host where all is installed": changed(
        dict.fromkeys(("storage.usr_mib", "storage.var_mib", "storage.free_mib"), 0),
    ),
    "a declared Python that is there": changed({
        "pytorch_python": "3.13", "torch.declared": "/usr/bin/python3.13",
    }, bare=True),
    "a declared Python that is to be installed": changed({
        "pytorch_python": "3.13", "packages_extra": ["python3.13-venv"],
    }, bare=True),
    "a Python that uv downloads": changed({"pytorch_python": "3.13"}, bare=True),
}  # fmt: skip


@pytest.mark.parametrize("name", WELCOME)
def test_what_is_as_declared_or_is_repaired_later_is_not_refused(name: str) -> None:
    assert said(WELCOME[name]) == []


# Each with what its sentence must say: what was found, and the remedy.
REFUSED: dict[str, tuple[GpuHost, tuple[str, ...]]] = {
    "another login than the user who has the environment": (
        changed({f"{PREFIX}/venv": entry("dir", "0755", "carol")}),
        ("/venv belongs to carol, and the login is ubuntu", 'declare `owner = "carol"`'),
    ),
    "no GPU on the bus": (
        changed({"gpus.devices": []}),
        ("0 NVIDIA GPUs on the PCI bus; expected gpu_count = 2", "seating", "cpu-torch2.13"),
    ),
    "another kind of GPU than one whose ids we do not know": (
        changed({"gpu_model": "RTX 4090"}),
        ("is 10de:2b85, RTX 5090; expected gpu_model = 'RTX 4090'", "correct `gpu_model`"),
    ),
    "the bus cannot be read": (
        changed({"gpus.devices": "?no permission"}),
        ("cannot tell what is on the PCI bus: no permission",),
    ),
    "the firmware gives no window": (
        changed({"gpus.devices": [{**each, "bar1": False} for each in FACTS["gpus.devices"]]}),
        ("no BAR1 aperture", "Above 4G Decoding"),
    ),
    "Blackwell with proprietary modules": (
        changed({"driver_modules": "proprietary", "gpu_model": None}, bare=True),
        ("driver_modules = 'proprietary'", "set driver_modules = 'open'"),
    ),
    "Secure Boot without an enrolled key": (
        changed({
            "system.secure_boot": True, "driver.mok": False,
        }, bare=True),
        ("Secure Boot is on", "mokutil --import /var/lib/dkms/mok.pub", "console"),
    ),
    "Secure Boot, and mokutil talks nonsense": (
        changed({"system.secure_boot": True, "driver.mok": "?it hung"}, bare=True),
        ("(not known: it hung",),
    ),
    "Secure Boot, and a module of another signature is to be replaced": (
        changed({"system.secure_boot": True, "nvidia.packages": MIXED}), ("Secure Boot is on",),
    ),
    "a .run file's driver": (
        changed({"driver.runfile": True}),
        (".run file", "sudo nvidia-uninstall", "driver_source = 'present'"),
    ),
    "it cannot be told whether a .run file was here, and packages must move": (
        changed({"driver.runfile": "?no permission"}, bare=True),
        ("whether a .run file installed a driver: no permission",),
    ),
    "the driver came from Ubuntu's archive": (
        changed(packages("libnvidia-compute-580 580.95.05-0ubuntu0.24.04.2 0 1")),
        ("libnvidia-compute-580 came from the distribution's archive", "apt-get purge"),
    ),
    "what `ubuntu-drivers install --gpgpu` installs": (
        changed(
            packages(
                "nvidia-headless-no-dkms-580-server-open 580.95.05-0ubuntu0.24.04.1 0 1",
                "nvidia-kernel-common-580-server 580.95.05-0ubuntu0.24.04.1 0 1",
                "linux-modules-nvidia-580-server-open-6.8.0-149-generic 6.8.0-149.149 0 1",
            ),
        bare=True),
        (
            "linux-modules-nvidia-580-server-open-6.8.0-149-generic, nvidia-headless",
            "nvidia-kernel-common-580-server`, or declare",
        ),
    ),
    "Debian's helper was left behind, with which NVIDIA's driver conflicts": (
        changed(packages(DEBIANS_HELPER), bare=True),
        ("came from the distribution's archive", "apt-get purge nvidia-kernel-common`"),
    ),
    "jobs run and the packages have to move": (
        changed({**JOB, "nvidia.packages": MIXED}),
        ("pid 812 (python3), pid 813 (python3)", "run again when they are done"),
    ),
    "it cannot be told who is at work, and the packages have to move": (
        changed({"driver.users": "?no permission", "nvidia.packages": MIXED}),
        ("who uses the GPUs", "no permission"),
    ),
    "a distribution that NVIDIA has no repository for": (
        changed(system("Debian 11", "11", "debian")),
        ("runs Debian 11; expected one of the supported", "declare its whole URL"),
    ),
    "a distribution whose repository does not carry the branch": (
        changed(system(*DEBIAN_13), bare=True),
        ("driver_branch = 580 is too old for NVIDIA's repository for debian 13", "'r595-cu132'"),
    ),
    "a Python that is not there": (
        bare_gpu_host(data={"pytorch_python": "python3.13"}, reported={"torch.python": None}),
        ("there is no /usr/bin/python3.13", "declare `pytorch_python = 'python3'`, which is 3.1"),
    ),
    "a Python that cannot be downloaded": (
        bare_gpu_host(
            data={"pytorch_python": "3.13", "pytorch_wheels": "/srv/wheels"},
            reported={"torch.python": None},
        ),
        ("there is no /usr/bin/python3.13", "give a mirror as `pytorch_python_url`"),
    ),
    "gcc that nvcc refuses": (
        changed({"cuda.gcc": "16.1.0"}), ("gcc 16", "set host_compiler = 'gcc-15'"),
    ),
    "too little room": (
        changed({
            "storage.free_mib": 2252, "torch.version": None,
        }, bare=True),
        ("2.2 GiB free at /opt/pyinfra-gpu",),
    ),
    "the shared memory of a container that nobody asked for more": (
        changed({"smoke": "auto", "storage.shm_mib": 64}),
        ("/dev/shm has 64 MiB; expected 256 MiB, for 2 ranks", "size=1G", "--shm-size=1g"),
    ),
    "/var is full, and a small thing is to be installed": (
        changed({
            "storage.var_mib": 6,
            "packages.installed": {"git": "1:2.39"},
        }),
        ("6 MiB free at /var; expected 102 MiB", "journalctl --vacuum-size"),
    ),
    "/boot is full, and another initramfs has to be made": (
        changed({
            "storage.boot_mib": 30, "storage.initrd_mib": 62,
            "kernel.installed": ["6.1.0-9-amd64", "6.1.0-37-amd64"],
        }, bare=True),
        ("30 MiB free at /boot; expected 70 MiB, for another initramfs",),
    ),
    "the root file system became read-only": (
        changed({"storage.readonly": "/"}), ("/ is mounted read-only", "mount -o remount,rw /"),
    ),
    "dpkg's status file was emptied": (
        changed({"packages.installed": "?/var/lib/dpkg/status is empty; it was"}),
        ("cannot tell which packages are installed: /var/lib/dpkg/status is empty",),
    ),
    "room that cannot be told, and something to install": (
        changed({"storage.var_mib": "?df hung"}, bare=True),
        ("cannot tell the free disk space at /var: df hung",),
    ),
    "another system": (
        changed({
            "driver_source": "present", **system("Alpine Linux v3.22", None, "alpine"),
        }),
        ("runs Alpine Linux v3.22; expected one of the supported",),
    ),
}  # fmt: skip


def test_a_tmp_from_which_nothing_can_be_loaded_is_told_where_something_would_be() -> None:
    noexec = {"storage.noexec": "/tmp"}
    for data, reported in (
        ({}, "preflight.mount-unfit report"),
        ({"environment_variables": {"TMPDIR": "/scratch"}}, ""),
        ({"environment_dynamo": False}, ""),
    ):
        host = proven_host(data=data, reported=noexec)
        found = preflight.judge(host.spec(), host.record())
        assert " ".join(f"{each.id} {each.effect}" for each in found) == reported
        assert not any(each.stops for each in found)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused_with_its_remedy(name: str) -> None:
    host, words = REFUSED[name]
    host = replace(host, data={**DATA, **host.data})
    sentences = said(host)
    assert all("ws1" in sentence for sentence in sentences)
    for word in words:
        assert any(word in sentence for sentence in sentences), sentences


@pytest.mark.parametrize(
    ("uri", "carries"),
    [
        ("file:///var/cuda-repo-ubuntu2404-13-0-local", True),
        ("file:/var/nvidia-driver-local-repo-ubuntu2404-580.95.05", True),
        ("https://ppa.launchpadcontent.net/graphics-drivers/ppa/ubuntu", True),
        ("https://repo.download.nvidia.com/baseos/ubuntu/noble/x86_64", True),
        ("https://nvidia.github.io/libnvidia-container/stable/deb/amd64", False),
        ("https://developer.download.nvidia.com/devtools/repos/ubuntu2404/amd64", False),
    ],
)
def test_which_sources_carry_drivers(uri: str, carries: bool) -> None:
    sentences = said(changed(sources(f"/etc/apt/sources.list.d/x.list:deb {uri} /")))
    assert any("names a second source" in each for each in sentences) is carries
    assert any("x.list.disabled`, or declare it" in each for each in sentences) is carries


def test_ubuntu_gets_its_own_way_out_of_secure_boot() -> None:
    host = bare_gpu_host(
        reported={
            "system.secure_boot": True,
            **system("Ubuntu 24.04", "24.04", "ubuntu"),
        },
    )
    (sentence,) = said(host)
    assert "driver_source = 'distribution'`: Ubuntu's own modules are signed" in sentence
    assert "/var/lib/shim-signed/mok/MOK.der" in sentence


@pytest.mark.parametrize(
    ("changes", "loaded"),
    [
        ({}, VERSION),
        ({"reported": {"driver.on_disk": "580.105.08"}}, None),
        ({"reported": {"nvidia.packages": MIXED}}, None),
        ({"data": {"driver_source": "present"}, "reported": {"nvidia.packages": MIXED}}, VERSION),
    ],
)
def test_a_driver_that_goes_is_not_judged(changes: dict[str, Any], loaded: str | None) -> None:
    host = proven_host(**changes)
    assert preflight.host_facts(host.spec(), host.record()).driver_loaded == loaded


def test_the_compiler_counts_only_for_a_toolkit() -> None:
    host = proven_host(data={"cuda_toolkit": False}, reported={"cuda.gcc": "16.1.0"})
    assert said(host) == []
    host = proven_host(reported={"cuda.gcc": "16.1.0"})
    (found,) = preflight.judge(host.spec(), host.record())
    assert found.packages == ("gcc",)  # the log says since when


def test_the_summary_is_short() -> None:
    host = proven_host()
    text = preflight.summary(host.spec(), host.record())
    assert text == "Debian GNU/Linux 12 (bookworm), 16 CPUs, 63 GiB, 2 NVIDIA GPUs"
