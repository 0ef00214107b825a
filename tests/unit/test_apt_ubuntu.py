"""Our pins between Ubuntu's archive and NVIDIA's repository, solved by the machine's own apt."""

from __future__ import annotations

from pathlib import Path

import pytest
from private_apt import APT, PrivateApt
from ubuntu_archives import ASKED, NVIDIA, archives, nvidia_580, pin_file, revision

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
    assert judge(simulation, Limits(branch=580, version=version, url="file:/", installed={})) == []
    drivers = [each for each in simulation.changes if driver_version(each.new or "")]
    assert {each.labels for each in drivers} == {(NVIDIA,)}
    return {change.name: change.new for change in simulation.changes if change.new}


def test_what_is_asked_for_is_what_the_stage_asks_for() -> None:
    assert catalogue().driver_packages("ubuntu", 580, "open", "compute") == ASKED


@pytest.mark.parametrize("pinned", [False, True], ids=["without the pin package", "with it"])
@pytest.mark.parametrize("version", [None, OLDER, NEWEST])
def test_the_driver_of_branch_580_is_nvidias_whatever_ubuntu_has(
    apt: PrivateApt, version: str | None, pinned: bool
) -> None:
    apt.preferences(files.preferences(580, version, None))
    if pinned:
        wanted = f"{version}-*" if version else "580.*"
        (apt.root / "etc/apt/preferences.d/nvidia-driver-pin").write_text(pin_file(wanted))
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
