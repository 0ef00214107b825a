"""What is read from a machine's apt configuration, and the repository made from packages."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pyinfra_gpu.packages.model import Source
from pyinfra_gpu.packages.sources import read
from pyinfra_gpu_rehearsal.aptconfig import (
    AptConfiguration,
    acquire_options,
    of_distribution,
    of_release,
    read_machine,
)
from pyinfra_gpu_rehearsal.base_image import KEY_NAME, make_repository
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.state import HostRecord, LabRecord

BOOKWORM = {"ID": "debian", "VERSION_CODENAME": "bookworm"}
NOBLE = {"ID": "ubuntu", "VERSION_CODENAME": "noble"}


@pytest.mark.parametrize(
    ("line", "release", "kept"),
    [
        ("deb http://m.example/debian bookworm main", BOOKWORM, True),
        ("deb http://m.example/debian bookworm-updates main", BOOKWORM, True),
        ("deb http://m.example/s bookworm-security main", BOOKWORM, True),
        ("deb http://m.example/debian trixie main", BOOKWORM, False),
        ("deb http://m.example/debian bookworm-backports main", BOOKWORM, False),
        ("deb http://m.example/debian bookworm contrib", BOOKWORM, False),
        ("deb https://docker.example/linux bookworm stable", BOOKWORM, False),
        ("deb [signed-by=/etc/apt/keyrings/other.gpg] https://o.example bookworm main", BOOKWORM,
         False),
        ("deb https://cloud.example/apt cloud-sdk-bookworm main", BOOKWORM, False),
        ("deb [signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg] http://u.example noble"
         " main universe", NOBLE, True),
    ],
)  # fmt: skip
def test_only_archives_of_the_distribution_itself_are_used(
    line: str, release: dict[str, str], kept: bool
) -> None:
    assert bool(of_distribution(read("x.list", [line]), release)) is kept


def test_of_apts_options_only_those_that_say_how_archives_are_reached_are_kept() -> None:
    dump = (
        'APT::Architecture "amd64";\nAcquire "";\nAcquire::http "";\n'
        'Acquire::http::Proxy "http://proxy.example:3128";\nAcquire::Languages:: "none";\n'
        'Acquire::httpsomething "no";\nAcquire::Check-Date "false";\n'
    )
    assert acquire_options(dump) == [
        'Acquire::http::Proxy "http://proxy.example:3128";',
        'Acquire::Check-Date "false";',
    ]


@pytest.mark.parametrize(
    ("release", "sources", "message"),
    [
        ("ID=fedora\nPRETTY_NAME=Fedora\n", "", "made from Debian or Ubuntu packages, .* Fedora$"),
        ("ID=debian\nVERSION_CODENAME=bookworm\n", "deb http://x.example trixie main\n",
         "^no archive of debian bookworm with component main is configured"),
    ],
)  # fmt: skip
def test_a_machine_hosts_cannot_be_made_from_is_refused_with_one_sentence(
    tmp_path: Path, release: str, sources: str, message: str
) -> None:
    (tmp_path / "etc/apt/sources.list.d").mkdir(parents=True)
    (tmp_path / "etc/os-release").write_text(release)
    (tmp_path / "etc/apt/sources.list").write_text(sources)
    with pytest.raises(LabError, match=message):
        read_machine(tmp_path)


def machine(distribution: str = "debian") -> AptConfiguration:
    main = Source(
        file="sources.list",
        uri="http://m.example/debian",
        suites=("bookworm", "bookworm-updates"),
        components=("main",),
        signed_by="/k.gpg",
    )
    security = replace(main, uri="http://m.example/security", suites=("bookworm-security",))
    return AptConfiguration(
        distribution=distribution, codename="bookworm", sources=(main, security), options=()
    )


def test_another_release_is_reached_where_the_machine_has_its_own_from() -> None:
    assert of_release(machine(), "") == machine()
    apt = of_release(machine(), "debian13")
    assert apt.codename == "trixie"
    assert apt.sources_text() == (
        "deb [signed-by=/k.gpg] http://m.example/debian trixie main\n"
        "deb [signed-by=/k.gpg] http://m.example/debian trixie-updates main\n"
        "deb [signed-by=/k.gpg] http://m.example/security trixie-security main\n"
    )


@pytest.mark.parametrize(
    ("distribution", "name", "words"),
    [("debian", "debian10", "there are debian12, debian13"), ("ubuntu", "debian13", "has ubuntu$")],
)
def test_a_release_whose_archives_are_not_known_here_is_refused(
    distribution: str, name: str, words: str
) -> None:
    with pytest.raises(LabError, match=words):
        of_release(machine(distribution), name)


def test_the_hosts_of_one_lab_run_the_same() -> None:
    record = LabRecord(lab_id="0" * 8, subnet=1, group="/g", release="debian13")
    assert record.release_of("") == "debian13"
    assert record.release_of("debian12") == "debian12"
    record.hosts["gpu1"] = HostRecord(name="gpu1", last=11)
    assert record.release_of("debian13") == "debian13"
    with pytest.raises(LabError, match="run debian13, not debian12: `down` first"):
        record.release_of("debian12")


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")
def test_a_repository_lists_its_packages_in_indexes_its_release_file_vouches_for(
    tmp_path: Path,
) -> None:
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    control = (
        "Package: small\nVersion: 1:2\nArchitecture: all\nMaintainer: x <x@y>\nDescription: d\n"
    )
    (tree / "DEBIAN/control").write_text(control)
    package = tmp_path / "small_1%3a2_all.deb"
    subprocess.run(["dpkg-deb", "-Zxz", "-b", tree, package], check=True, capture_output=True)
    assert make_repository([package], tmp_path / "debian", suite="bookworm") == 1
    suite = tmp_path / "debian/dists/bookworm"
    (index,) = suite.glob("main/binary-*/Packages")
    text = index.read_text()
    assert "Package: small\n" in text
    assert "Filename: pool/small_2_all.deb\n" in text
    assert b"data.tar.xz" not in (tmp_path / "debian/pool/small_2_all.deb").read_bytes()
    assert gzip.decompress(index.with_suffix(".gz").read_bytes()).decode() == text
    name = index.relative_to(suite)
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert f" {digest} {len(text)} {name}\n" in (suite / "Release").read_text()
    verify = ["gpgv", "--keyring", tmp_path / "debian" / KEY_NAME, suite / "InRelease"]
    subprocess.run(verify, check=True, capture_output=True)
