"""Ubuntu's own driver: every deviation with its near miss, over a healthy host."""

from __future__ import annotations

import pytest
from gpu_host import GpuHost
from own_driver_host import (
    MODULES,
    NOBLE_KERNEL,
    NOBLE_NEXT,
    SIGNED,
    record,
    signed_rows,
    ubuntu,
)

from pyinfra_gpu.drift.driver import judge
from pyinfra_gpu.drift.preflight import judge as preflight
from pyinfra_gpu.operations.driver import requests
from pyinfra_gpu.packages import files

NEXT = {"kernel.installed": [NOBLE_KERNEL, NOBLE_NEXT], "kernel.module": [f"{NOBLE_NEXT} -"]}
SOMEBODYS = {"driver.module": "/bin/false /etc/modprobe.d/mine.conf"}
DEBIAN = {"system.os": ['PRETTY_NAME="Debian 12"', 'VERSION_ID="12"', "ID=debian"]}

CASES: dict[str, tuple[GpuHost, list[str]]] = {
    "as declared, with Secure Boot and without headers": (ubuntu(), []),
    "pins of NVIDIA's repository": (
        ubuntu(texts={files.PREFERENCES: files.preferences(580, None, None).encode()}),
        ["pins-differ"],
    ),
    "unattended upgrades that leave the modules behind": (
        ubuntu(texts={files.UNATTENDED: files.unattended().encode()}), ["pins-differ"],
    ),
    "what has a version of its own": (
        ubuntu(
            lists={
                "nvidia.package": [*signed_rows(NOBLE_KERNEL), "nvidia-modprobe 570.133.07-1 0 1"],
            },
        ),
        [],
    ),
    "no module for the running kernel": (
        ubuntu(lists={"nvidia.package": signed_rows()}), ["not-installed"],
    ),
    "no module for the next kernel": (ubuntu(lists=NEXT), ["not-installed", "module-not-built"]),
    "a module's file is gone": (ubuntu(plain={"driver.on_disk": None}), ["module-not-built"]),
    "somebody forbade the module": (ubuntu(plain=SOMEBODYS), ["module-name-differs"]),
    "somebody forbade NVIDIA's module": (GpuHost(plain=SOMEBODYS), ["module-name-differs"]),
    "a rule that loads the module itself": (
        GpuHost(plain={"driver.module": "nvidia /etc/modprobe.d/x.conf"}), [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_deviation_is_seen_and_its_near_miss_is_not(name: str) -> None:
    host, expected = CASES[name]
    found = judge(host.spec(), record(host))
    assert [each.id.removeprefix("driver.") for each in found] == expected


def test_what_has_its_own_version_is_asked_for_without_one() -> None:
    host = ubuntu(lists=NEXT)
    asked = requests(host.spec(), record(host))
    assert f"{MODULES}{NOBLE_NEXT}" in asked
    assert f"nvidia-utils-580-server={SIGNED}-*" in asked


def stops(host: GpuHost) -> list[str]:
    found = preflight(host.spec(), record(host))
    return [f"{each.found}; {each.expected}; {each.action}" for each in found if each.stops]


def test_secure_boot_without_a_key_does_not_stop_what_ubuntu_signed() -> None:
    gone = {"driver.loaded": None, "driver.on_disk": None, "system.secure_boot": "1"}
    assert stops(ubuntu(plain=gone, lists={"nvidia.package": []})) == []


def test_an_archive_without_the_branch_is_refused_with_the_way_out() -> None:
    bare: dict[str, object] = {"nvidia.package": []}
    (said,) = stops(ubuntu(lists=bare, data={"stack": "r595-cu132"}))
    assert said.startswith("driver_source = 'distribution' offers branch 535 and 570 and 580")
    assert said.endswith("driver_source = 'nvidia'")
    (said,) = stops(ubuntu(lists={**bare, **DEBIAN}))
    assert "no packages of driver branch 580 with open modules are known in the archive" in said
    assert "declare `driver_source = 'nvidia'`" in said


OTHER = MODULES.replace("-server", "")


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (None, None),
        ("nvidia-dkms-580-open 580.95.05-1ubuntu1 0 1", "nvidia-dkms-580-open"),
        ("libnvidia-compute-570-server 570.211.01-0ubuntu1 0 1", None),
        (f"{OTHER}x 6.8.0-149.149 0 1", f"{OTHER}x"),
    ],
)
def test_another_drivers_packages_are_left_to_a_person(row: str | None, name: str | None) -> None:
    host = ubuntu(lists={"nvidia.package": [row]} if row else {})
    found = [each for each in stops(host) if "of another driver" in each]
    assert bool(found) is (name is not None)
    if name:
        assert found[0].startswith(f"{name} is installed") and "apt-get purge" in found[0]
