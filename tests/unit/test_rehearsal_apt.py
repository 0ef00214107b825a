"""What is read from a machine's apt configuration, and the repository made from packages."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from pyinfra_gpu.on_host.probe.apt import listed
from pyinfra_gpu_rehearsal import LabError
from pyinfra_gpu_rehearsal.apt_repository import repack, write_repository
from pyinfra_gpu_rehearsal.base_image import ACQUIRE, archives_of, own_lines


@pytest.mark.parametrize(
    ("line", "codename", "kept"),
    [
        ("deb http://m.example/debian bookworm main", "bookworm", True),
        ("deb http://m.example/debian bookworm-updates main", "bookworm", True),
        ("deb http://m.example/s bookworm-security main", "bookworm", True),
        ("deb http://m.example/debian trixie main", "bookworm", False),
        ("deb http://m.example/debian bookworm-backports main", "bookworm", False),
        ("deb http://m.example/debian bookworm contrib", "bookworm", False),
        ("deb https://docker.example/linux bookworm stable", "bookworm", False),
        ("deb [signed-by=/etc/apt/keyrings/other.gpg] https://o.example bookworm main", "bookworm",
         False),
        ("deb https://cloud.example/apt cloud-sdk-bookworm main", "bookworm", False),
        ("deb [signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg] http://u.example noble"
         " main universe", "noble", True),
    ],
)  # fmt: skip
def test_only_archives_of_the_distribution_itself_are_used(
    line: str, codename: str, kept: bool
) -> None:
    assert own_lines(listed("x.list", [line]), codename) == ([line] if kept else [])


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ('Acquire::http "";', False),
        ('Acquire::http::Proxy "http://proxy.example:3128";', True),
        ('Acquire::Languages:: "none";', False),
        ('Acquire::httpsomething "no";', False),
        ('Acquire::Check-Date "false";', True),
    ],
)
def test_of_apts_options_only_those_that_say_how_archives_are_reached_are_kept(
    line: str, kept: bool
) -> None:
    assert bool(ACQUIRE.match(line)) == kept


def machine(root: Path, release: str, sources: str) -> Path:
    (root / "etc/apt/sources.list.d").mkdir(parents=True)
    (root / "etc/os-release").write_text(release)
    (root / "etc/apt/sources.list").write_text(sources)
    return root


DEBIAN = "ID=debian\nVERSION_CODENAME=bookworm\n"
UBUNTU = "ID=ubuntu\nVERSION_CODENAME=noble\n"
ARCHIVE = (
    "deb [signed-by=/debian-archive.gpg] http://m.example/debian bookworm main\n"
    "deb http://m.example/security bookworm-security main\n"
)


@pytest.mark.parametrize(
    ("system", "sources", "release", "message"),
    [
        ("ID=fedora\nPRETTY_NAME=Fedora\n", "", "", "from Debian or Ubuntu packages, .* Fedora$"),
        (DEBIAN, "deb http://x.example trixie main\n", "",
         "^no archive of debian bookworm with component main is configured"),
        (UBUNTU, "deb http://u.example noble main\n", "debian13", "has ubuntu$"),
    ],
)  # fmt: skip
def test_a_machine_hosts_cannot_be_made_from_is_refused_with_one_sentence(
    tmp_path: Path, system: str, sources: str, release: str, message: str
) -> None:
    with pytest.raises(LabError, match=message):
        archives_of(release, machine(tmp_path, system, sources))


def test_another_release_is_reached_where_the_machine_has_its_own_from(tmp_path: Path) -> None:
    root = machine(tmp_path, DEBIAN, ARCHIVE)
    assert "\n".join((*archives_of(root=root).lines, "")) == ARCHIVE
    apt = archives_of("debian13", root)
    assert apt.codename == "trixie"
    assert "\n".join((*apt.lines, "")) == ARCHIVE.replace("bookworm", "trixie")


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
    (tmp_path / "pool").mkdir()
    made = repack(package, tmp_path / "pool")
    assert made.name == "small_2_all.deb"
    assert b"data.tar.xz" not in made.read_bytes()
    folder = tmp_path / "debian"
    write_repository(folder, [made], "origin", "label")
    text = (folder / "Packages").read_text()
    assert "Package: small\n" in text
    assert "Filename: small_2_all.deb\n" in text
    assert (folder / made.name).resolve() == made
    assert gzip.decompress((folder / "Packages.gz").read_bytes()).decode() == text
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert f" {digest} {len(text)} Packages\n" in (folder / "Release").read_text()
