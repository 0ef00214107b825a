"""Our pins and our guard, put to the test by the machine's own apt on a root of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from private_apt import APT, Package, PrivateApt

from pyinfra_gpu.engine.ask import Answer
from pyinfra_gpu.engine.transaction import NOT_FETCHED, why
from pyinfra_gpu.packages import files
from pyinfra_gpu.packages.simulation import parse

pytestmark = pytest.mark.skipif(APT is None, reason="no apt-get on this machine")

VERSIONS = ("580.82.07", "580.95.05", "595.71.05")


def driver(version: str) -> list[Package]:
    exact = f"Depends: libcuda1 (= {version}-1)\n"
    return [
        Package("nvidia-driver-cuda", f"{version}-1", exact),
        Package("libcuda1", f"{version}-1"),
        Package("nvidia-modprobe", f"{version}-1"),
    ]


@pytest.fixture
def apt(tmp_path: Path) -> PrivateApt:
    """NVIDIA's repository, and a distribution with a newer driver of the same names."""
    private = PrivateApt(tmp_path)
    private.repository(
        "NVIDIA CUDA",
        *(package for version in VERSIONS for package in driver(version)),
        Package("nvidia-container-toolkit", "1.18.0-1"),
        Package("cuda-toolkit-13-0", "13.0.2-1"),
        Package("cuda-toolkit-13-0", "13.0.3-1"),
    )
    private.repository(
        "Debian", *driver("580.178.04"), Package("nvidia-kernel-common", "20220217"), suite="stable"
    )
    private.preferences(files.preferences(580, None, None))
    return private


def changes(apt: PrivateApt, *packages: str) -> dict[str, str | None]:
    simulation = parse(apt.simulate(*packages))
    assert simulation.problems == ()
    return {change.name: change.new for change in simulation.changes}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ("rm -r repository0", "apt says: E: Failed to fetch file:"),
        (
            "sed -i 's/trusted=yes/trusted=no/' etc/apt/sources.list",
            "cannot verify the signature of a package source (apt: E:",
        ),
        ("echo x >> repository0/Packages", "is not the one the source's index names (apt: E: "),
        (
            "sed -i 's|file:[^ ]*0 |http://127.0.0.1:9/x |' etc/apt/sources.list",
            "was not reached or refused (apt: E: Failed to fetch http://127.0.0.1:9/x",
        ),
    ],
)
def test_what_the_machines_own_apt_says_of_a_bad_repository_is_understood(
    apt: PrivateApt, spoil: str, words: str
) -> None:
    subprocess.run(spoil, shell=True, check=True, cwd=apt.root)
    lines = tuple(
        apt.run("update", "-o", "APT::Update::Error-Mode=any", "-o", "Acquire::Retries=0")
    )
    assert words in why(Answer(ok=False, stdout=(), lines=lines))


def test_that_packages_cannot_be_fetched_is_known_by_apts_own_words(apt: PrivateApt) -> None:
    """It begins nothing then: what it was to install has no file in this repository."""
    apt.run("update")
    said = apt.run("install", "-y", "-o", "Dir::Bin::dpkg=/bin/false", "nvidia-modprobe")
    assert [line for line in said if line.startswith(NOT_FETCHED)], said


def test_another_branch_is_brought_back(apt: PrivateApt) -> None:
    apt.installed(*driver("595.71.05"))
    found = changes(apt, "nvidia-driver-cuda", "libcuda1", "nvidia-modprobe")
    assert set(found.values()) == {"580.95.05-1"}


def test_what_would_be_older_than_before_is_known(apt: PrivateApt) -> None:
    apt.installed(*driver("580.95.05")[1:])
    found = parse(apt.simulate("libcuda1=580.82.07-1", "nvidia-modprobe")).changes
    assert [(change.name, change.lower) for change in found] == [("libcuda1", True)]


def test_an_upgrade_of_everything_stays_in_the_branch(apt: PrivateApt) -> None:
    apt.installed(*driver("580.82.07"))
    apt.run("update")
    found = parse(apt.run("-s", "dist-upgrade")).changes
    assert {change.new for change in found} == {"580.95.05-1"}
    apt.preferences(files.preferences(580, "580.82.07", None))
    assert parse(apt.run("-s", "dist-upgrade")).changes == ()


def test_what_is_not_the_driver_stays_free(apt: PrivateApt) -> None:
    assert changes(apt, "nvidia-kernel-common", "nvidia-container-toolkit") == {
        "nvidia-kernel-common": "20220217",
        "nvidia-container-toolkit": "1.18.0-1",
    }


def test_a_declared_toolkit_is_exact(apt: PrivateApt) -> None:
    apt.preferences(files.preferences(580, None, ("cuda-toolkit-13-0", "13.0.2")))
    assert changes(apt, "cuda-toolkit-13-0") == {"cuda-toolkit-13-0": "13.0.2-1"}


def test_a_version_that_no_source_has_is_a_problem_where_it_is_to_be_installed_again(
    apt: PrivateApt,
) -> None:
    apt.installed(Package("nvidia-modprobe", "580.65.06-1"), *driver("580.82.07")[1:2])
    found = parse(apt.simulate("--reinstall", "nvidia-modprobe=580.65.06-1", "libcuda1"))
    assert found.problems == (
        "Reinstallation of nvidia-modprobe is not possible, it cannot be downloaded.",
    )


def test_what_was_removed_by_force_is_named_and_asked_for_with_the_rest(apt: PrivateApt) -> None:
    apt.installed(*(each for each in driver("580.82.07") if each.name != "libcuda1"))
    asked = ("nvidia-driver-cuda=580.82.07-*", "nvidia-modprobe=580.82.07-*")
    found = parse(apt.simulate(*asked))
    assert found.problems
    assert found.unmet == ("libcuda1=580.82.07-1",)
    assert changes(apt, *asked, *found.unmet) == {"libcuda1": "580.82.07-1"}
