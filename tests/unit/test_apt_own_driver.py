"""The distributions' own drivers, put to the test by the machine's own apt on a root of its own.

Relations and versions are those of the archives' indexes of 2026-11-23, but for what plays no part
in choosing a version. Debian 12: its security archive has all of the driver newer, but not the open
modules. Ubuntu 24.04: the modules of each kernel are for one version of the driver.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from private_apt import APT, Package, PrivateApt

from pyinfra_gpu.packages import apt as apt_words
from pyinfra_gpu.packages import files
from pyinfra_gpu.packages.limits import Limits, judge
from pyinfra_gpu.packages.simulation import parse
from pyinfra_gpu.stacks import catalogue

pytestmark = pytest.mark.skipif(APT is None, reason="no apt-get on this machine")

OPEN, NEWER = "535.261.03", "535.309.01"
DEBIAN, UBUNTU = catalogue().archives["debian"], catalogue().archives["ubuntu"]
WANTED = DEBIAN.driver(535, "open", "compute") or ()
LIBRARIES = ("libnvidia-ml1", "libnvidia-cfg1", "libnvidia-ptxjitcompiler1", "nvidia-smi")
TOOLKIT = ("cuda-toolkit-12-6", "12.6.3")


def graphics(u: str, revision: str) -> list[Package]:
    """One version of Debian's source package nvidia-graphics-drivers."""
    v = f"{u}{revision}"
    alternative = f"nvidia-alternative (= {v})"
    needs = f"libnvidia-ptxjitcompiler1 (= {v}), libnvidia-pkcs11-openssl3 (= {v})"
    check = "nvidia-legacy-check (>= 495)"
    return [
        Package("libcuda1", v, f"Pre-Depends: {check}\nDepends: {alternative}, {needs}\n"),
        *(Package(name, v, f"Depends: {alternative}\n") for name in LIBRARIES),
        Package("libnvidia-pkcs11-openssl3", v),
        Package("nvidia-alternative", v, f"Provides: nvidia-alternative-{u}\n"),
        Package("firmware-nvidia-gsp", v, f"Provides: firmware-nvidia-gsp-{u}\n"),
        Package("nvidia-kernel-dkms", v, f"Depends: firmware-nvidia-gsp (= {v}), dkms\n"),
        Package("nvidia-modprobe", v),
        Package("nvidia-legacy-check", v),
    ]


def open_modules(u: str, revision: str = "-1") -> list[Package]:
    """One version of Debian's source package nvidia-open-gpu-kernel-modules."""
    v = f"{u}{revision}"
    gsp, support = f"firmware-nvidia-gsp-{u}", f"nvidia-open-kernel-support (= {v})"
    depends = f"nvidia-alternative-{u}, nvidia-modprobe (>= {u.partition('.')[0]})"
    return [
        Package("nvidia-open-kernel-dkms", v, f"Depends: {gsp}, {support}, dkms\n"),
        Package("nvidia-open-kernel-support", v, f"Depends: {depends}\n"),
    ]


@pytest.fixture
def bookworm(tmp_path: Path) -> PrivateApt:
    """Debian 12 with its security archive, and NVIDIA's repository for the toolkit."""
    apt = PrivateApt(tmp_path)
    stable = [*graphics(OPEN, "-1"), *open_modules(OPEN), Package("dkms", "3.0.10")]
    stable += [Package("nvidia-persistenced", "535.171.04-1~deb12u1", "Depends: libnvidia-cfg1\n")]
    apt.repository("Debian", *stable, suite="bookworm")
    apt.repository("Debian-Security", *graphics(NEWER, "-0+deb12u1"), suite="bookworm-security")
    nvidia = [Package(name, "580.95.05-1") for name in ("libcuda1", "nvidia-persistenced")]
    apt.repository(
        "NVIDIA CUDA", *nvidia, Package("dkms", "1:3.2.1"), Package(TOOLKIT[0], "12.6.3-1")
    )
    apt.preferences(files.preferences(535, None, TOOLKIT, apart=DEBIAN.apart))
    return apt


def limits(branch: int, **changes: object) -> Limits:
    given = {"branch": branch, "version": None, "url": "", "installed": {}} | changes
    own = DEBIAN if branch == 535 else UBUNTU
    return Limits(labels=own.labels, apart=frozenset(own.apart), **given)  # type: ignore[arg-type]


def test_the_newest_of_each_is_no_driver_with_open_modules(bookworm: PrivateApt) -> None:
    assert "held broken packages" in " ".join(parse(bookworm.simulate(*WANTED)).problems)


def test_one_version_of_all_is_found_where_its_companions_are_named(bookworm: PrivateApt) -> None:
    beside = DEBIAN.beside(535, "open")
    following = [name for name in (*WANTED, *beside) if name not in DEBIAN.apart]
    asked = [f"{name}={OPEN}-*" for name in following]
    simulation = parse(bookworm.simulate(*asked, "nvidia-persistenced"))
    assert simulation.problems == ()
    assert judge(simulation, limits(535)) == []
    new = {change.name: change.new for change in simulation.changes}
    assert {new[name] for name in following} == {f"{OPEN}-1"}
    assert new["nvidia-persistenced"] == "535.171.04-1~deb12u1"
    assert new["nvidia-modprobe"] == f"{NEWER}-0+deb12u1"
    assert new["dkms"] == "3.0.10"


def test_the_proprietary_modules_come_with_the_security_update(bookworm: PrivateApt) -> None:
    wanted = DEBIAN.driver(535, "proprietary", "compute") or ()
    simulation = parse(bookworm.simulate(*wanted))
    assert judge(simulation, limits(535)) == []
    new = {change.name: change.new for change in simulation.changes}
    assert {new["libcuda1"], new["nvidia-kernel-dkms"]} == {f"{NEWER}-0+deb12u1"}


def test_what_is_on_offer_is_read_off_apts_own_words(bookworm: PrivateApt) -> None:
    bookworm.run("update")
    command = apt_words.on_offer(["libcuda1", "nvidia-open-kernel-dkms", "nvidia-none"])
    found = apt_words.on_offer_in(bookworm.cache(command))
    assert set(found.pop("libcuda1")) == {f"{NEWER}-0+deb12u1", f"{OPEN}-1", "580.95.05-1"}
    assert found == {"nvidia-open-kernel-dkms": (f"{OPEN}-1",)}


def test_nvidias_drivers_stay_out_and_its_toolkit_comes(bookworm: PrivateApt) -> None:
    new = {c.name: c.new for c in parse(bookworm.simulate("libcuda1", TOOLKIT[0])).changes}
    assert (new["libcuda1"], new[TOOLKIT[0]]) == (f"{NEWER}-0+deb12u1", "12.6.3-1")
    bookworm.preferences("")
    new = {c.name: c.new for c in parse(bookworm.simulate("libcuda1")).changes}
    assert new == {"libcuda1": "580.95.05-1"}


def test_a_driver_from_elsewhere_is_refused(bookworm: PrivateApt) -> None:
    bookworm.preferences("")
    simulation = parse(bookworm.simulate("libcuda1"))
    assert "leave the declared branch" in judge(simulation, limits(535))[0]
    bookworm.repository("Stranger", *graphics("535.400.01", "-1"), suite="x")
    (said, *_) = judge(parse(bookworm.simulate("libcuda1=535.400*")), limits(535))
    assert "would come from another origin (Stranger)" in said


def signed(kernel: str, u: str) -> Package:
    """Ubuntu's modules for one kernel, which bring it where it is not there."""
    common = f"nvidia-kernel-common-580-server (<= {u}-1), nvidia-kernel-common-580-server (>= {u})"
    depends = f"Depends: linux-image-{kernel} | linux-image-unsigned-{kernel}, {common}\n"
    return Package(f"linux-modules-nvidia-580-server-open-{kernel}", "6.8.0-151.151", depends)


def headless(u: str) -> list[Package]:
    """One version of Ubuntu's source package nvidia-graphics-drivers-580-server."""
    v = f"{u}-0ubuntu0.24.04.1"
    common = "nvidia-kernel-common-580-server"
    needs = ("libnvidia-compute-580-server", "nvidia-compute-utils-580-server")
    needs += ("nvidia-kernel-source-580-server-open", "libnvidia-cfg1-580-server")
    exact = ", ".join(f"{name} (= {v})" for name in needs)
    within = f"{common} (<= {u}-1), {common} (>= {u})"
    return [
        Package("nvidia-headless-no-dkms-580-server-open", v, f"Depends: {within}, {exact}\n"),
        Package("nvidia-utils-580-server", v, f"Depends: {common}-{u}\n"),
        Package("nvidia-compute-utils-580-server", v, "Provides: nvidia-persistenced\n"),
        Package("libnvidia-compute-580-server", v, f"Depends: {common}-{u}\n"),
        Package(common, v, f"Provides: nvidia-kernel-common, {common}-{u}\n"),
        Package("nvidia-kernel-source-580-server-open", v),
        Package("libnvidia-cfg1-580-server", v, f"Depends: {common}-{u}\n"),
    ]


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
        *headless(SIGNED),
        *headless(BEFORE),
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
    assert judge(simulation, limits(580)) == []
    assert {change.new for change in simulation.changes} == {
        f"{BEFORE}-0ubuntu0.24.04.1",
        "6.8.0-151.151",
    }


def test_what_would_bring_a_kernel_now_is_refused(noble: PrivateApt) -> None:
    simulation = parse(noble.simulate(*asked(SIGNED)[:-1], SERIES))
    assert any("a kernel" in reason for reason in judge(simulation, limits(580)))
    noble.installed(Package(f"linux-image-{LATER}", "6.8.0-151.151"))
    simulation = parse(noble.simulate(*asked(SIGNED)[:-1], SERIES))
    assert judge(simulation, limits(580)) == []
