"""The simulated repository's relations, solved with our pins by the machine's own apt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from private_apt import APT, Package, PrivateApt

from pyinfra_gpu.packages import files
from pyinfra_gpu.packages.names import driver_version
from pyinfra_gpu.packages.simulation import Limits, Simulation, judge, parse
from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu_rehearsal.nvidia import debs, driver_packages
from pyinfra_gpu_rehearsal.nvidia.archive import DKMS
from pyinfra_gpu_rehearsal.nvidia.bad_repository import OF_DISTRIBUTION, revised
from pyinfra_gpu_rehearsal.nvidia.kernels import HELPER

pytestmark = pytest.mark.skipif(APT is None, reason="no apt-get on this machine")

NVIDIA = "NVIDIA CUDA"
VERSIONS = OLDER, NEWEST, NEXT = ("580.82.07", "580.95.05", "595.71.05")
OWN_DKMS = "3.0.10-8+deb12u1"
SUSPEND = "nvidia-suspend-common"
THE_HELPER = Package(HELPER, "20220217+3~deb12u1")


def shown(package: debs.Package) -> Package:
    relations = "".join(f"{key}: {value}\n" for key, value in package.relations.items() if value)
    return Package(package.name, package.version, relations)


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PrivateApt:
    """NVIDIA's repository and Debian's archive, which has the driver too, equal and ahead."""

    def uncompiled(source: str, target: Path, *words: Any) -> Path:
        del source, words
        return target

    monkeypatch.setattr(driver_packages, "_compile", uncompiled)
    made = {
        version: driver_packages.driver_packages(version, tmp_path)
        for version in (*VERSIONS, OF_DISTRIBUTION)
    }
    private = PrivateApt(tmp_path / "root")
    private.repository(
        NVIDIA,
        *(shown(each) for version in VERSIONS for each in made[version]),
        *(shown(each) for each in driver_packages.pin_packages(VERSIONS)),
        Package("dkms", DKMS),
    )
    private.repository(
        "Debian",
        *(shown(each) for each in made[OF_DISTRIBUTION]),
        *(shown(revised(each, NEWEST)) for each in made[NEWEST]),
        *(Package(name, "1") for name in ("libc6", "kmod", "gcc")),
        Package("dkms", OWN_DKMS, "Depends: gcc\n"),
        THE_HELPER,
        suite="bookworm",
    )
    return private


def solved(apt: PrivateApt, branch: int, version: str | None, kind: str) -> Simulation:
    names = catalogue().driver_packages("debian", branch, "open", kind) or ()  # type: ignore[arg-type]
    wanted = (f"{name}={version}-*" if version else name for name in names)
    return parse(apt.simulate(*wanted))


def refusals(simulation: Simulation, branch: int, version: str | None) -> list[str]:
    limits = Limits(branch=branch, version=version, url="file:/", installed={})
    return judge(simulation, limits)


@pytest.mark.parametrize("kind", ["compute", "full"])
@pytest.mark.parametrize("pinned", [False, True], ids=["without the pin package", "with it"])
@pytest.mark.parametrize(
    ("branch", "version"), [(580, None), (580, OLDER), (580, NEWEST), (595, None)]
)
def test_the_driver_is_nvidias_whatever_the_distribution_has(
    apt: PrivateApt, branch: int, version: str | None, pinned: bool, kind: str
) -> None:
    apt.preferences(files.preferences(branch, version, None))
    if pinned:
        name = f"{driver_packages.PIN_FILE.split('/')[-1]}"
        pins = driver_packages.pin_packages((version or "580.1",))
        text = next(p for p in pins if p.name.endswith(version or str(branch))).files
        (apt.root / "etc/apt/preferences.d" / name).write_text(str(text[driver_packages.PIN_FILE]))
    simulation = solved(apt, branch, version, kind)
    assert simulation.problems == ()
    assert refusals(simulation, branch, version) == []
    expected = f"{version or (NEWEST if branch == 580 else NEXT)}-1"
    driver = [each for each in simulation.changes if driver_version(each.new or "")]
    assert {each.new for each in driver} == {expected}
    assert {each.labels for each in driver} == {(NVIDIA,)}
    new = {each.name: each.new for each in simulation.changes}
    assert (new["dkms"], new["gcc"]) == (OWN_DKMS, "1")
    assert {"libnvidia-gpucomp", "libnvidia-decode", "firmware-nvidia-gsp"} <= set(new)


def test_without_our_pins_each_of_them_tempts(apt: PrivateApt) -> None:
    new = {c.name: c.new for c in parse(apt.simulate("nvidia-kernel-open-dkms")).changes}
    assert (new["nvidia-kernel-open-dkms"], new["dkms"]) == (f"{NEXT}-1", DKMS)
    (apt.root / "etc/apt/preferences.d/by-version").write_text(
        "Package: *nvidia* libcuda1\nPin: version 580.*\nPin-Priority: 1001\n"
    )
    new = {c.name: c.new for c in parse(apt.simulate("nvidia-kernel-open-dkms")).changes}
    assert new["nvidia-kernel-open-dkms"] == f"{OF_DISTRIBUTION}-1"


def test_debians_helper_is_not_taken_away_behind_anybodys_back(apt: PrivateApt) -> None:
    apt.preferences(files.preferences(580, None, None))
    apt.installed(THE_HELPER)
    simulation = solved(apt, 580, None, "compute")
    said = f"it would remove {HELPER}, which is no part of the driver"
    assert refusals(simulation, 580, None) == [said]


@pytest.mark.parametrize(
    ("version", "kind", "taken"),
    [
        ("535.261.03-1", "compute", None),
        ("535.261.03-1", "full", []),
        ("1", "full", [f"it would remove {SUSPEND}, which is no part of the driver"]),
    ],
)
def test_debians_suspend_units_make_room_for_the_whole_driver_alone(
    apt: PrivateApt, version: str, kind: str, taken: list[str] | None
) -> None:
    """They are a part of Debian's driver by their version; what has another is somebody's."""
    apt.preferences(files.preferences(580, None, None))
    apt.installed(Package(SUSPEND, version))
    simulation = solved(apt, 580, None, kind)
    assert simulation.problems == ()
    gone = [change.name for change in simulation.changes if change.new is None]
    assert gone == ([] if taken is None else [SUSPEND])
    assert refusals(simulation, 580, None) == (taken or [])


@pytest.mark.parametrize("branch", [580, 595])
def test_where_nvidia_has_no_branch_580_it_is_refused_and_595_is_nvidias(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, branch: int
) -> None:
    """As for Debian 13, whose own archive has a driver of another branch beside."""
    monkeypatch.setattr(driver_packages, "_compile", lambda source, target, *words: target)
    theirs, debians = (
        [shown(each) for each in driver_packages.driver_packages(version, tmp_path)]
        for version in (NEXT, "550.163.01")
    )
    apt = PrivateApt(tmp_path / "root")
    apt.repository(NVIDIA, *theirs, Package("dkms", DKMS))
    others = (Package(name, "1") for name in ("libc6", "kmod", "gcc"))
    dkms = Package("dkms", OWN_DKMS, "Depends: gcc\n")
    apt.repository("Debian", *debians, *others, dkms, suite="trixie")
    apt.preferences(files.preferences(branch, None, None))
    simulation = solved(apt, branch, None, "compute")
    refused = refusals(simulation, branch, None)
    if branch == 580:
        assert f"libcuda1 {NEXT}-1 would leave the declared branch 580 of the driver" in refused
        return
    assert (simulation.problems, refused) == ((), [])
    driver = [each for each in simulation.changes if driver_version(each.new or "")]
    assert {(each.new, each.labels) for each in driver} == {(f"{NEXT}-1", (NVIDIA,))}
    assert OWN_DKMS in {each.new for each in simulation.changes if each.name == "dkms"}
