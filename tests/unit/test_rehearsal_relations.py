"""The simulated repository's relations, solved with our pins by the machine's own apt."""

from __future__ import annotations

from pathlib import Path

import pytest
from private_apt import APT, Package, PrivateApt

from pyinfra_gpu.packages import files
from pyinfra_gpu.packages.names import driver_version
from pyinfra_gpu.packages.simulation import Limits, Simulation, judge, parse
from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu_rehearsal.nvidia import packages

pytestmark = pytest.mark.skipif(APT is None, reason="no apt-get on this machine")

NVIDIA = "NVIDIA CUDA"
VERSIONS = OLDER, NEWEST, NEXT = ("580.82.07", "580.95.05", "595.71.05")
OF_DISTRIBUTION = "580.178.04"  # of the same names in the distribution's archive
REVISION = "0+deb12u1"  # lower than NVIDIA's, as Ubuntu's are
DKMS = "1:3.2.1-1"  # NVIDIA's own: its epoch beats every distribution's
OWN_DKMS = "3.0.10-8+deb12u1"
HELPER = "nvidia-kernel-common"  # what Debian has beside any driver; NVIDIA's conflicts with it
SUSPEND = "nvidia-suspend-common"
THE_HELPER = Package(HELPER, "20220217+3~deb12u1")


def shown(version: str, revision: str = "1") -> list[Package]:
    """Return a driver's packages, as an archive has them that packs them in this revision."""
    found = []
    for each in packages.driver_packages(version):
        rows = {"Source": each.source, "Depends": each.depends, "Conflicts": each.conflicts}
        text = "".join(f"{key}: {value}\n" for key, value in rows.items() if value)
        text = text.replace(f"{version}-1", f"{version}-{revision}")
        found.append(Package(each.name, f"{version}-{revision}", text))
    return found


@pytest.fixture
def apt(tmp_path: Path) -> PrivateApt:
    """NVIDIA's repository and Debian's archive, which has the driver too, equal and ahead."""
    private = PrivateApt(tmp_path / "root")
    nvidias = [each for version in VERSIONS for each in shown(version)]
    private.repository(NVIDIA, *nvidias, Package("dkms", DKMS))
    private.repository(
        "Debian",
        *shown(OF_DISTRIBUTION),
        *shown(NEWEST, REVISION),
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
    limits = Limits(branch=branch, version=version, url="file:/")
    return judge(simulation, limits)


@pytest.mark.parametrize("kind", ["compute", "full"])
@pytest.mark.parametrize(
    ("branch", "version"), [(580, None), (580, OLDER), (580, NEWEST), (595, None)]
)
def test_the_driver_is_nvidias_whatever_the_distribution_has(
    apt: PrivateApt, branch: int, version: str | None, kind: str
) -> None:
    apt.preferences(files.preferences(branch, version, None))
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
    tmp_path: Path, branch: int
) -> None:
    """As for Debian 13, whose own archive has a driver of another branch beside."""
    theirs, debians = shown(NEXT), shown("550.163.01")
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
