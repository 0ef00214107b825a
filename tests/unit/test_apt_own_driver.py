"""Ubuntu's own driver, put to the test by the machine's own apt on a root of its own.

Relations and versions are those of the archive's indexes of 2026-11-23, but for what plays no part
in choosing a version: the modules of each kernel are for one version of the driver.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from private_apt import APT, Package, PrivateApt
from ubuntu_archives import packages

from pyinfra_gpu.packages import apt as apt_words
from pyinfra_gpu.packages import files
from pyinfra_gpu.packages.simulation import Limits, judge, parse
from pyinfra_gpu.stacks import catalogue

pytestmark = pytest.mark.skipif(APT is None, reason="no apt-get on this machine")

UBUNTU = catalogue().archives["ubuntu"]


LIMITS = Limits(
    branch=580, version=None, url="", installed={},
    labels=UBUNTU.labels, apart=frozenset(UBUNTU.apart),
)  # fmt: skip


def signed(kernel: str, u: str) -> Package:
    """Ubuntu's modules for one kernel, which bring it where it is not there."""
    common = f"nvidia-kernel-common-580-server (<= {u}-1), nvidia-kernel-common-580-server (>= {u})"
    depends = f"Depends: linux-image-{kernel} | linux-image-unsigned-{kernel}, {common}\n"
    return Package(f"linux-modules-nvidia-580-server-open-{kernel}", "6.8.0-151.151", depends)


# One version of Ubuntu's source package nvidia-graphics-drivers-580-server.
HEADLESS = """
nvidia-headless-no-dkms-580-server-open
Depends: nvidia-kernel-common-580-server (<= {u}-1), nvidia-kernel-common-580-server (>= {u}),
 libnvidia-compute-580-server (= {v}), nvidia-compute-utils-580-server (= {v}),
 nvidia-kernel-source-580-server-open (= {v}), libnvidia-cfg1-580-server (= {v})
nvidia-utils-580-server
Depends: nvidia-kernel-common-580-server-{u}
nvidia-compute-utils-580-server
Provides: nvidia-persistenced
libnvidia-compute-580-server
Depends: nvidia-kernel-common-580-server-{u}
nvidia-kernel-common-580-server
Provides: nvidia-kernel-common, nvidia-kernel-common-580-server-{u}
nvidia-kernel-source-580-server-open
libnvidia-cfg1-580-server
Depends: nvidia-kernel-common-580-server-{u}
"""
NOW, LATER = "6.8.0-149-generic", "6.8.0-151-generic"
SERIES = "linux-modules-nvidia-580-server-open-generic-6.8"
SIGNED, BEFORE = "580.178.04", "580.173.02"


@pytest.fixture
def noble(tmp_path: Path) -> PrivateApt:
    """Ubuntu 24.04 with a newer kernel on offer than the one that runs."""
    apt = PrivateApt(tmp_path)
    leads = (
        f"Depends: {signed(LATER, SIGNED).name}, nvidia-kernel-common-580-server (>= {SIGNED})\n"
    )
    apt.repository(
        "Ubuntu",
        *(
            each
            for u in (SIGNED, BEFORE)
            for each in packages(HEADLESS, u, f"{u}-0ubuntu0.24.04.1")
        ),
        signed(NOW, BEFORE),
        signed(LATER, SIGNED),
        Package(SERIES, "6.8.0-151.151", leads),
        Package(f"linux-image-{LATER}", "6.8.0-151.151"),
        suite="noble",
    )
    apt.installed(Package(f"linux-image-{NOW}", "6.8.0-149.149"))
    apt.preferences(files.preferences(580, None, None, apart=UBUNTU.apart))
    return apt


def asked(version: str, *more: str) -> list[str]:
    names = (*(UBUNTU.driver(580, "open", "compute") or ()), *UBUNTU.beside(580, "open"))
    module = UBUNTU.kernel_package(580, "open", NOW)
    return [*(f"{name}={version}-*" for name in names), str(module), *more]


def test_the_modules_of_a_kernel_choose_the_version_of_the_driver(noble: PrivateApt) -> None:
    assert parse(noble.simulate(*asked(SIGNED))).problems
    simulation = parse(noble.simulate(*asked(BEFORE)))
    assert judge(simulation, LIMITS) == []
    noble.run("update")
    offered = apt_words.on_offer_in(noble.cache(apt_words.on_offer(["nvidia-utils-580-server"])))
    assert len(offered["nvidia-utils-580-server"]) == 2
    assert {change.new for change in simulation.changes} == {
        f"{BEFORE}-0ubuntu0.24.04.1",
        "6.8.0-151.151",
    }


def test_what_would_bring_a_kernel_now_is_refused(noble: PrivateApt) -> None:
    simulation = parse(noble.simulate(*asked(SIGNED)[:-1], SERIES))
    assert any("a kernel" in reason for reason in judge(simulation, LIMITS))
    noble.installed(Package(f"linux-image-{LATER}", "6.8.0-151.151"))
    simulation = parse(noble.simulate(*asked(SIGNED)[:-1], SERIES))
    assert judge(simulation, LIMITS) == []
