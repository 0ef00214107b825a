"""The pure parts of the simulated GPU: what its kernel refuses, what its packages say."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from probing import Tree, tree_fixture  # noqa: F401

from pyinfra_gpu_rehearsal import LabError
from pyinfra_gpu_rehearsal.apt_repository import ensure_key
from pyinfra_gpu_rehearsal.nvidia.machines import machine_named
from pyinfra_gpu_rehearsal.nvidia.on_host.simulated_kernel import (
    NEEDS,
    Kernel,
    RefusedError,
    blacklisted,
    modprobe,
    rmmod,
)
from pyinfra_gpu_rehearsal.nvidia.packages import newer_release
from pyinfra_gpu_rehearsal.nvidia.repository import (
    NvidiaRepository,
    Offer,
    carries,
    first_offer,
)
from pyinfra_gpu_rehearsal.own_layer import write_hardware

RELEASE = "6.1.0-1"


class KernelInAFolder(Kernel):
    """A kernel whose module files are text: field=value, one a line."""

    def file(self, name: str) -> Path | None:
        path = self.root / "usr/lib/modules" / self.release / f"updates/dkms/{name}.ko"
        return path if path.exists() else None

    def field(self, path: Path, name: str) -> str:
        rows = path.read_text().splitlines()
        return dict(row.split("=", 1) for row in rows).get(name, "")


def machine(folder: Path, name: str = "2x RTX 5090") -> KernelInAFolder:
    """Return the kernel of the machine NAME in FOLDER, without any module."""
    write_hardware(machine_named(name), folder / "hardware")
    for path in ("sys/bus/pci", "sys/module", "proc/driver", "dev", "boot", "var/log"):
        (folder / path).mkdir(parents=True)
    (folder / "hardware/pci").rename(folder / "sys/bus/pci/devices")
    (folder / "hardware/firmware").rename(folder / "sys/firmware")
    return KernelInAFolder(folder, RELEASE)


def install(kernel: Kernel, license_: str = "Dual MIT/GPL", release: str = RELEASE) -> None:
    """Install the driver's modules, as a build for the kernel RELEASE makes them."""
    for name in (*NEEDS, "nouveau"):
        path = kernel.root / f"usr/lib/modules/{RELEASE}/updates/dkms/{name}.ko"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"version=580.95.05\nlicense={license_}\nvermagic={release} SMP\n")


def drivers(kernel: Kernel) -> list[str | None]:
    return [kernel.driver_of(card) for card in kernel.cards()]


def test_loading_makes_what_the_real_kernel_makes(tmp_path: Path) -> None:
    kernel = machine(tmp_path)
    install(kernel)
    kernel.load("nvidia_drm")
    assert drivers(kernel) == ["nvidia", "nvidia"]
    assert (tmp_path / "sys/module/nvidia/version").read_text() == "580.95.05\n"
    line = (tmp_path / "proc/driver/nvidia/version").read_text().splitlines()[0]
    assert "NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  " in line
    devices = sorted(path.name for path in (tmp_path / "dev").iterdir())
    assert devices == ["nvidia-modeset", "nvidia0", "nvidia1", "nvidiactl"]


def test_unloading_leaves_nothing_and_follows_the_dependents(tmp_path: Path) -> None:
    kernel = machine(tmp_path)
    install(kernel)
    kernel.load("nvidia_drm")
    kernel.load("nvidia_uvm")
    assert rmmod(kernel, ["nvidia"]) == 1
    assert modprobe(kernel, ["-r", "nvidia-drm"]) == 0
    assert [name for name in NEEDS if kernel.loaded(name)] == ["nvidia", "nvidia_uvm"]
    assert modprobe(kernel, ["-r", "nvidia_uvm"]) == 0
    assert list((tmp_path / "sys/module").iterdir()) == []
    assert list((tmp_path / "dev").iterdir()) == []
    assert not (tmp_path / "proc/driver/nvidia").exists()
    assert drivers(kernel) == [None, None]


def test_a_device_in_use_keeps_the_module(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = machine(tmp_path)
    install(kernel)
    kernel.load("nvidia")
    held = tmp_path / "proc/17/fd"
    held.mkdir(parents=True)
    (held / "3").symlink_to(tmp_path / "dev/nvidia1")
    assert rmmod(kernel, ["nvidia"]) == 1
    assert capsys.readouterr().err == "rmmod: ERROR: Module nvidia is in use\n"
    (held / "3").unlink()
    assert rmmod(kernel, ["nvidia"]) == 0


def test_a_module_of_another_kernel_is_refused(tmp_path: Path) -> None:
    kernel = machine(tmp_path)
    install(kernel, release="6.1.0-2")
    with pytest.raises(RefusedError, match="Exec format error"):
        kernel.load("nvidia")


@pytest.mark.parametrize("name", ["2x RTX 5090", "2x B200"])
def test_the_proprietary_module_binds_no_blackwell(tmp_path: Path, name: str) -> None:
    kernel = machine(tmp_path, name)
    install(kernel, "NVIDIA")
    kernel.load("nvidia")
    assert drivers(kernel) == [None, None]
    assert "NVIDIA UNIX x86_64 Kernel Module" in (kernel.proc / "version").read_text()


def test_the_open_module_drives_no_card_before_turing(tmp_path: Path) -> None:
    kernel = machine(tmp_path, "2x GTX 1080 Ti")
    install(kernel)
    with pytest.raises(RefusedError, match="No such device"):
        kernel.load("nvidia")
    install(kernel, "NVIDIA")
    kernel.load("nvidia")
    assert drivers(kernel) == ["nvidia", "nvidia"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("blacklist nouveau\n", True),
        ("alias nouveau off", True),
        ("install nouveau /bin/false", True),
        ("# blacklist nouveau", False),
        ("blacklist nouveau-extra", False),
        ("options nouveau modeset=0", False),
        ("install nouveau /sbin/modprobe --ignore-install nouveau", False),
    ],
)
def test_what_counts_as_a_blacklist(text: str, expected: bool) -> None:
    assert blacklisted(text, "nouveau") is expected


@pytest.mark.parametrize(
    ("name", "device"),
    [("2x RTX 5090", "10de:2b85"), ("8x H200", "10de:2335"), ("1x GTX 1080 Ti", "10de:1b06")],
)
def test_a_machine_is_what_the_probe_reads(tree: Tree, name: str, device: str) -> None:
    bus = tree.root / "sys/bus/pci/devices"
    for card in machine(tree.base / "machine", name).cards():
        shutil.copytree(card, bus / card.name)
    seen = tree.look().gpus.devices
    assert isinstance(seen, tuple)
    assert [(gpu.pci_id, gpu.bar1) for gpu in seen] == [(device, True)] * int(name[0])


@pytest.mark.parametrize("name", ["abacus", "9x RTX 5090", "2x GB10", "2x rtx 5090"])
def test_a_machine_that_cannot_be_simulated_is_refused(name: str) -> None:
    with pytest.raises(LabError, match=f"there is no simulated machine '{name}': it is one to"):
        machine_named(name)


def test_a_newer_kernel_is_newer() -> None:
    assert newer_release("6.18.44-fc-v657") == "6.19.1-1-amd64"
    assert newer_release("5.9.2") == "5.10.1-1-amd64"
    with pytest.raises(LabError, match="no package can be named"):
        newer_release("next")


@pytest.mark.parametrize(
    ("distribution", "versions"),
    [("debian12", ("580.82.07", "580.95.05")), ("debian13", ("595.71.05",))],
)
def test_a_repository_offers_the_branches_of_its_release(
    distribution: str, versions: tuple[str, ...]
) -> None:
    assert first_offer(distribution) == versions
    assert carries(distribution, "595.71.05")
    assert carries(distribution, "580.95.05") == (distribution == "debian12")


@pytest.fixture
def repository(tmp_path: Path) -> NvidiaRepository:
    """Return a repository of packages without contents, with what it offers at first."""
    archive, newer = tmp_path / "archive", newer_release(os.uname().release).split("-")[0]
    names = {
        "580.95.05": ["libcuda1_580.95.05-1_amd64"],
        "580.105.08": ["libcuda1_580.105.08-1_amd64"],
        "595.71.05": ["libcuda1_595.71.05-1_amd64"],
        "kernels": ["linux-image-amd64_1-1_amd64", f"linux-image-amd64_{newer}-1_amd64"],
    }
    for part, packages in names.items():
        (archive / part).mkdir(parents=True)
        for name in packages:
            (archive / part / f"{name}.deb").write_text("")
            (archive / part / f"{name}.stanza").write_text(f"Package: {name}\n")
    (archive / "cuda").mkdir()
    made = NvidiaRepository(folder=tmp_path / "lab", www=tmp_path / "www", server="http://h")
    made.folder.mkdir()
    ensure_key(made._key, "a test")
    first = Offer(distribution="debian12", archive=archive, server="http://h", versions=())
    made._file.write_text(first.model_dump_json())
    made.offer("580.95.05")
    return made


@pytest.mark.skipif(
    not (shutil.which("gpg") and shutil.which("dpkg-deb")), reason="needs gpg and dpkg-deb"
)
def test_what_is_on_offer_already_is_not_signed_again(repository: NvidiaRepository) -> None:
    """A repository that was signed anew is new to every host."""

    def signed() -> list[int]:
        places = (repository.www / "nvidia/debian12/x86_64", repository.www / "kernels")
        return [(place / "Release").stat().st_mtime_ns for place in places]

    first = signed()
    repository.offer("580.95.05")
    assert signed() == first
    repository.offer("580.105.08")
    driver, kernels = signed()
    assert driver > first[0] and kernels == first[1]
    assert repository.offer_newer() == "595.71.05"
    with pytest.raises(LabError, match=r"newer than 595\.71\.05"):
        repository.offer_newer()
    repository.offer("580.95.05", newer_kernel=True)
    assert signed()[1] > first[1]
    assert "linux-image-amd64_1-1" in (repository.www / "kernels/Packages").read_text()
    with pytest.raises(LabError, match=r"no simulated driver 1\.2\.3"):
        repository.offer("1.2.3")
    with pytest.raises(LabError, match="cannot go bad in the way 'arsenic'"):
        repository.offer(bad="arsenic")


@pytest.mark.skipif(
    not (shutil.which("gpg") and shutil.which("dpkg-deb")), reason="needs gpg and dpkg-deb"
)
def test_the_keyring_is_the_same_until_another_key_signs(repository: NvidiaRepository) -> None:
    before = repository.keyring_sha256
    repository.offer("580.105.08")
    assert repository.keyring_sha256 == before
    repository.offer("580.95.05", bad="replaced-key")
    assert repository.keyring_sha256 != before
    repository.offer("580.95.05")
    assert repository.keyring_sha256 == before
