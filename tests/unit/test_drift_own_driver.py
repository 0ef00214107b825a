"""The distribution's own driver: every deviation with its near miss, over healthy hosts."""

from __future__ import annotations

import pytest
from gpu_host import GpuHost
from own_driver_host import (
    ADDED,
    HOPPERS,
    LED,
    MAIN,
    MODULES,
    NEWER,
    NOBLE_KERNEL,
    NOBLE_NEXT,
    SECURITY,
    debian,
    record,
    rows,
    signed_rows,
    ubuntu,
)

from pyinfra_gpu.drift import driver_repository, libcuda
from pyinfra_gpu.drift.driver import judge
from pyinfra_gpu.drift.preflight import judge as preflight
from pyinfra_gpu.operations.driver_packages import requests
from pyinfra_gpu.packages import files

FULL = MAIN.replace("bookworm main", "bookworm main contrib non-free non-free-firmware")
ALL_THERE = [FULL, SECURITY.replace("security main", "security main contrib non-free")]
NEXT = {"kernel.installed": [NOBLE_KERNEL, NOBLE_NEXT], "kernel.module": [f"{NOBLE_NEXT} -"]}
NVIDIA_KERNEL = ["/etc/apt/sources.list:deb http://x/ bookworm main contrib non-free"]

CASES: dict[str, tuple[GpuHost, list[str]]] = {
    "Debian as declared": (debian(), []),
    "Ubuntu as declared, with Secure Boot and without headers": (ubuntu(), []),
    # the archive
    "components that no list names": (debian(texts={files.ARCHIVE: None}), ["archive-incomplete"]),
    "components that the lists name": (
        debian(
            lists={"nvidia.source_line": [FULL, FULL.replace("debian bookworm", "s bookworm-x")]},
            texts={files.ARCHIVE: None},
        ),
        [],
    ),
    "one component of one suite is missing": (
        debian(lists={"nvidia.source_line": ALL_THERE}, texts={files.ARCHIVE: None}),
        ["archive-incomplete"],
    ),
    "pins of NVIDIA's repository": (
        debian(texts={files.PREFERENCES: files.preferences(535, None, None).encode()}),
        ["pins-differ"],
    ),
    "unattended upgrades that leave the modules behind": (
        ubuntu(texts={files.UNATTENDED: files.unattended().encode()}),
        ["unattended-upgrades-allowed"],
    ),
    # the packages
    "security updates without the open modules": (
        debian(lists={"nvidia.package": rows(libcuda1=NEWER)}),
        ["versions-mixed"],
    ),
    "what has a version of its own": (
        debian(
            lists={
                "nvidia.package": [
                    *(row for row in rows() if not row.startswith("nvidia-modprobe")),
                    "nvidia-modprobe 570.133.07-1 0 1",
                ]
            }
        ),
        [],
    ),
    "the other flavour": (
        debian(
            lists={
                "nvidia.package": [
                    row.replace("nvidia-open-kernel-dkms", "nvidia-kernel-dkms") for row in rows()
                ]
            }
        ),
        ["wrong-flavour"],
    ),
    "no module for the running kernel": (
        ubuntu(lists={"nvidia.package": signed_rows()}),
        ["not-installed"],
    ),
    "no module for the next kernel": (
        ubuntu(lists=NEXT),
        ["not-installed", "module-not-built-for-next-kernel"],
    ),
    "a module's file is gone": (
        ubuntu(plain={"driver.on_disk": None}),
        ["module-not-built"],
    ),
    "headers on Debian": (
        debian(lists={"kernel.headers": ["6.1.0-30-amd64 0"]}),
        ["headers-missing"],
    ),
    # the names by which it is found
    "glx leads elsewhere": (
        debian(
            plain={"driver.module": None, "driver.on_disk": None},
            lists={"nvidia.alternative": [LED[0], "glx manual /usr/lib/mesa-diverted -"]},
        ),
        ["alternative-differs", "module-not-built"],
    ),
    "nvidia leads to the other flavour": (
        debian(
            plain={"driver.module": "nvidia-current /etc/modprobe.d/nvidia.conf"},
            lists={"nvidia.alternative": ["nvidia manual /usr/lib/nvidia/current -", LED[1]]},
        ),
        ["alternative-differs"],
    ),
    "a link that follows is gone": (
        debian(
            lists={
                "nvidia.alternative": [
                    "nvidia auto /usr/lib/nvidia/current-open /usr/bin/nvidia-smi",
                    LED[1],
                ]
            }
        ),
        ["alternative-differs"],
    ),
    "no such group": (debian(lists={"nvidia.alternative": LED[:1]}), ["alternative-differs"]),
    "a choice by hand that is right": (
        debian(lists={"nvidia.alternative": [each.replace("auto", "manual") for each in LED]}),
        [],
    ),
    "the rule names another module": (
        debian(plain={"driver.module": "nvidia-current /etc/modprobe.d/nvidia.conf"}),
        ["module-name-differs"],
    ),
    "the rule is gone": (
        debian(plain={"driver.module": None}),
        ["module-name-differs"],
    ),
    "somebody forbade the module": (
        debian(plain={"driver.module": "/bin/false /etc/modprobe.d/mine.conf"}),
        ["module-name-foreign"],
    ),
    "somebody forbade NVIDIA's module": (
        GpuHost(plain={"driver.module": "/bin/false /etc/modprobe.d/mine.conf"}),
        ["module-name-foreign"],
    ),
    "NVIDIA's packages have no alternatives": (GpuHost(lists={"nvidia.alternative": LED}), []),
}


@pytest.mark.parametrize("name", CASES)
def test_each_deviation_is_seen_and_its_near_miss_is_not(name: str) -> None:
    host, expected = CASES[name]
    found = judge(host.spec(), record(host))
    assert [each.id.removeprefix("driver.") for each in found] == expected


def test_what_the_lists_do_not_name_is_added_for_the_suites_that_they_do() -> None:
    host = debian(texts={files.ARCHIVE: None})
    missing = driver_repository.lacking(host.spec(), record(host))
    assert files.archive(missing or ()) == f"{files.HEADER}{ADDED}"


def test_a_host_without_the_archive_among_its_sources_is_told() -> None:
    host = debian(lists={"nvidia.source_line": NVIDIA_KERNEL[:0]})
    needed = driver_repository.judge.unread(host.spec(), record(host))
    assert [*needed] == ["the distribution's own archive is not among its package sources"]


def test_libcuda_behind_alternatives_is_the_drivers() -> None:
    host = debian()
    found = [each.id for each in libcuda.judge(host.spec(), record(host))]
    assert found == [libcuda.Id.LIBCUDA_UNPROVEN]


def test_what_has_its_own_version_is_asked_for_without_one() -> None:
    host = debian(lists={"nvidia.package": rows(libcuda1=NEWER)})
    asked = requests(host.spec(), record(host))
    assert "libcuda1=535.261.03-*" in asked
    assert "nvidia-persistenced" in asked
    host = ubuntu(lists=NEXT)
    asked = requests(host.spec(), record(host))
    assert f"{MODULES}{NOBLE_NEXT}" in asked
    assert "nvidia-utils-580-server=580.178.04-*" in asked


def stops(host: GpuHost) -> list[str]:
    found = preflight(host.spec(), record(host))
    return [f"{each.found}; {each.expected}; {each.action}" for each in found if each.stops]


def test_secure_boot_without_a_key_stops_what_dkms_signs_and_not_what_ubuntu_did() -> None:
    bare: dict[str, object] = {"nvidia.package": [], "nvidia.alternative": []}
    gone = {"driver.loaded": None, "driver.on_disk": None, "system.secure_boot": "1"}
    assert stops(ubuntu(plain=gone, lists=bare)) == []
    (said,) = stops(debian(plain=gone, lists=bare))
    assert "Secure Boot is on" in said


BLACKWELLS = [each.replace("0x2330 0x030200", "0x2b85 0x030000") for each in HOPPERS]


def test_an_archive_that_lacks_the_branch_is_refused_with_the_way_out() -> None:
    host = debian(
        lists={"nvidia.package": [], "gpus.device": BLACKWELLS},
        data={"stack": "r580-cu130", "gpu_model": "RTX 5090"},
    )
    (said,) = stops(host)
    assert said.startswith(
        "driver_source = 'distribution' offers branch 535 in the archive of debian 12"
    )
    assert "driver_branch = 580 is declared" in said
    assert said.endswith("set driver_source = 'nvidia'")


def test_an_older_gpu_takes_the_branch_that_there_is() -> None:
    host = debian(lists={"nvidia.package": []}, data={"stack": "r580-cu126"})
    (said,) = stops(host)
    assert "set stack = 'r535-cu126'" in said


@pytest.mark.parametrize(
    ("host", "name"),
    [
        (debian(), None),
        (debian(lists={"nvidia.package": [*rows(), "nvidia-kernel-open-dkms 535.86.10-1 0 1"]}),
         "nvidia-kernel-open-dkms"),
        (ubuntu(lists={"nvidia.package": ["nvidia-dkms-580-open 580.95.05-1ubuntu1 0 1"]}),
         "nvidia-dkms-580-open"),
        (ubuntu(lists={"nvidia.package": ["libnvidia-compute-570-server 570.211.01-0ubuntu1 0 1"]}),
         None),
        (ubuntu(lists={"nvidia.package": [f"{MODULES.replace('-server', '')}x 6.8.0-149.149 0 1"]}),
         f"{MODULES.replace('-server', '')}x"),
    ],
)  # fmt: skip
def test_another_drivers_packages_are_left_to_a_person(host: GpuHost, name: str | None) -> None:
    found = [each for each in stops(host) if "of another driver" in each]
    assert bool(found) is (name is not None)
    if name:
        assert found[0].startswith(f"{name} is installed") and "apt-get purge" in found[0]
