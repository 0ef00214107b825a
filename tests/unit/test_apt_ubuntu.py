"""Our pins between Ubuntu's archive and NVIDIA's repository, solved by the machine's own apt.

Relations and versions of Ubuntu's own driver are those of the archive's indexes of 2026-11-23, but
for what plays no part in choosing a version: the modules of each kernel are for one version.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from private_apt import APT, Package, PrivateApt
from ubuntu_archives import (
    ASKED,
    NVIDIA,
    archives,
    nvidia_580,
    packages,
    pin_file,
    revision,
)

from pyinfra_gpu.engine.transaction import offered
from pyinfra_gpu.packages import files
from pyinfra_gpu.packages.names import driver_version
from pyinfra_gpu.packages.simulation import Limits, judge, parse
from pyinfra_gpu.stacks import catalogue

pytestmark = pytest.mark.skipif(APT is None, reason="no apt-get on this machine")

OLDER, NEWEST = "580.95.05", "580.126.20"
# What Ubuntu's archive has beside NVIDIA's 580.95.05 and 580.126.20.
ARCHIVE = {"ahead": "580.142", "equal": NEWEST, "behind": "580.82.07", "without": None}


@pytest.fixture(params=ARCHIVE)
def apt(request: pytest.FixtureRequest, tmp_path: Path) -> PrivateApt:
    offered = ARCHIVE[request.param]
    return archives(tmp_path, (offered,) if offered else ())


def chosen(apt: PrivateApt, version: str | None) -> dict[str, str]:
    """What apt would install, once our own limits have let it pass."""
    wanted = (f"{name}={version}-*" if version else name for name in ASKED)
    simulation = parse(apt.simulate(*wanted))
    assert simulation.problems == ()
    assert judge(simulation, Limits(branch=580, version=version, url="file:/")) == []
    drivers = [each for each in simulation.changes if driver_version(each.new or "")]
    assert {each.labels for each in drivers} == {(NVIDIA,)}
    return {change.name: change.new for change in simulation.changes if change.new}


def test_what_is_asked_for_is_what_the_stage_asks_for() -> None:
    assert catalogue().driver_packages("ubuntu", 580, "open", "compute") == ASKED


@pytest.mark.parametrize("version", [None, OLDER, NEWEST])
def test_the_driver_of_branch_580_is_nvidias_whatever_ubuntu_has(
    apt: PrivateApt, version: str | None
) -> None:
    apt.preferences(files.preferences(580, version, None))
    found = chosen(apt, version)
    new = revision(version or NEWEST)
    assert found == {package.name: new for package in nvidia_580(NEWEST)} | {
        "dkms": "2.8.7-2ubuntu2.2",
        "gcc-12": "12.3.0-1ubuntu1~22.04",
    }


def test_nvidias_own_pin_takes_what_ubuntu_has_where_it_is_read_before_ours(tmp_path: Path) -> None:
    """It goes by the source's name and by no origin; so ours have the name that sorts before it."""
    apt = archives(tmp_path, ("580.142",))
    folder = apt.root / "etc/apt/preferences.d"
    (folder / "nvidia-driver-pin").write_text(pin_file("580.*"))
    for name, version in (("00ours", "580.126.20"), ("ours", "580.142")):
        (folder / name).write_text(files.preferences(580, None, None))
        changes = {change.name: change.new for change in parse(apt.simulate(*ASKED)).changes}
        assert driver_version(changes["nvidia-kernel-common-580"] or "") == version
        (folder / name).unlink()
    assert Path(files.PREFERENCES).name < "nvidia-driver-pin"


# --- Ubuntu's own driver

UBUNTU = catalogue().archives["ubuntu"]
LIMITS = Limits(
    branch=580, version=None, url="",
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
    madison = offered(noble.run("madison", "nvidia-utils-580-server", program="apt-cache"))
    assert len(madison["nvidia-utils-580-server"]) == 2
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
