"""Our pins between Ubuntu's archive and NVIDIA's repository, solved by the machine's own apt."""

from __future__ import annotations

from pathlib import Path

import pytest
from private_apt import APT, PrivateApt
from ubuntu_archives import ASKED, ASKED_590, NVIDIA, archives, nvidia_580, pin_file, revision

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


def chosen(apt: PrivateApt, *packages: str, branch: int, version: str | None) -> dict[str, str]:
    """What apt would install, once our own limits have let it pass."""
    simulation = parse(apt.simulate(*packages))
    assert simulation.problems == ()
    limits = Limits(branch=branch, version=version, url="file:/", installed={})
    assert judge(simulation, limits) == []
    for change in simulation.changes:
        if driver_version(change.new or ""):
            assert change.labels == (NVIDIA,), change
    return {change.name: change.new for change in simulation.changes if change.new}


def asked(version: str | None, names: tuple[str, ...] = ASKED) -> tuple[str, ...]:
    return tuple(f"{name}={version}-*" if version else name for name in names)


def test_what_is_asked_for_is_what_the_stage_asks_for() -> None:
    for branch, names in ((580, ASKED), (595, ASKED_590)):
        assert catalogue().driver_packages("ubuntu", branch, "open", "compute") == names


@pytest.mark.parametrize("pinned", [False, True], ids=["without the pin package", "with it"])
@pytest.mark.parametrize("version", [None, OLDER, NEWEST])
def test_the_driver_of_branch_580_is_nvidias_whatever_ubuntu_has(
    apt: PrivateApt, version: str | None, pinned: bool
) -> None:
    apt.preferences(files.preferences(580, version, None))
    if pinned:
        wanted = f"{version}-*" if version else "580.*"
        (apt.root / "etc/apt/preferences.d/nvidia-driver-pin").write_text(pin_file(wanted))
    found = chosen(apt, *asked(version), branch=580, version=version)
    new = revision(version or NEWEST)
    assert found == {package.name: new for package in nvidia_580(NEWEST)} | {
        "dkms": "2.8.7-2ubuntu2.2",
        "gcc-12": "12.3.0-1ubuntu1~22.04",
    }


@pytest.mark.parametrize("version", [None, "595.71.05"])
def test_a_branch_whose_names_do_not_carry_it_is_held_by_its_version(
    apt: PrivateApt, version: str | None
) -> None:
    apt.preferences(files.preferences(595, version, None))
    found = chosen(apt, *asked(version, ASKED_590), branch=595, version=version)
    assert {name: new for name, new in found.items() if driver_version(new)} == dict.fromkeys(
        (
            *("libnvidia-compute", "libnvidia-gpucomp", "nvidia-dkms-open", "nvidia-firmware"),
            *("nvidia-kernel-common", "nvidia-kernel-source-open", "nvidia-modprobe"),
            "nvidia-persistenced",
        ),
        "595.71.05-1ubuntu1",
    )


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
