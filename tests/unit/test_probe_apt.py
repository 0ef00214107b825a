"""What the probe tells of apt and NVIDIA's packages."""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from nvidia_tree import (
    FINGERPRINT,
    KEY,
    VERSION,
    gpu_host_fixture,  # noqa: F401
    look,
    package,
)
from probing import NOBODY, ROOT, Tree, tree_fixture, write  # noqa: F401

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import NvidiaPackage
from pyinfra_gpu.packages import files
from pyinfra_gpu.spec import system_files

LOG = "var/log/apt/history.log"


def status(tree: Tree, *stanzas: str) -> None:
    write(tree.root / "var/lib/dpkg/status", "".join(stanzas))


def test_packages_of_the_driver_are_told_with_their_hold(gpu_host: Tree) -> None:
    held = ("libcuda1", "libnvidia-ml1", "nvidia-kernel-open-dkms")
    assert look(gpu_host).nvidia.packages == tuple(
        NvidiaPackage(name=name, version=f"{VERSION}-1", held=True, complete=True) for name in held
    )


STATES = {
    "install ok installed": (False, True),
    "hold ok installed": (True, True),
    "install ok unpacked": (False, False),
    "install ok half-configured": (False, False),
    "install ok half-installed": (False, False),
    "hold reinstreq half-installed": (True, False),
    "install ok triggers-pending": (False, False),
    "deinstall ok config-files": None,
    "unknown ok not-installed": None,
}


@pytest.mark.parametrize("state", sorted(STATES))
def test_a_package_is_complete_or_not_or_not_there(gpu_host: Tree, state: str) -> None:
    text = package("libcuda1", "1:580-1", state)
    if "triggers" in state:
        text = text.replace("Description", "Triggers-Pending: x\nDescription")
    status(gpu_host, text)
    expected = STATES[state]
    found = look(gpu_host).nvidia.package("libcuda1")
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert (found.version, found.held, found.complete) == ("1:580-1", *expected)


OURS = (
    *("nvidia-open", "libnvidia-ml1", "libcuda1", "cuda-toolkit-13-0", "cuda-keyring", "libnvjpeg"),
    *("firmware-nvidia-gsp", "linux-modules-nvidia-580-open-6.8.0-31-generic", "libnccl2"),
    *("linux-objects-nvidia-580", "xserver-xorg-video-nvidia", "libxnvctrl0", "libcudnn9-cuda-13"),
)
OTHERS = ("libnvme1", "libnvpair3linux", "linux-image-amd64", "libcurl4", "barracuda", "libc6")


def test_only_packages_of_driver_and_toolkit_are_told(gpu_host: Tree) -> None:
    status(gpu_host, *(package(name, "1") for name in (*OURS, *OTHERS)))
    packages = look(gpu_host).nvidia.packages
    assert {each.name for each in packages} == set(OURS)  # type: ignore[union-attr]


def test_a_package_of_another_architecture_says_so(gpu_host: Tree) -> None:
    same = [package(name, "1").replace("Desc", "Multi-Arch: same\nDesc") for name in ("libcuda1",)]
    other = [text.replace(": amd64", ": i386").replace(": arm64", ": i386") for text in same]
    status(gpu_host, *same, *other, package("cuda-keyring", "1.1-1", arch="all"))
    names = [each.name for each in look(gpu_host).nvidia.packages]  # type: ignore[union-attr]
    assert names == ["cuda-keyring", "libcuda1", "libcuda1:i386"]


def test_sources_in_both_forms_are_told(gpu_host: Tree) -> None:
    folder = gpu_host.root / "etc/apt/sources.list.d"
    write(
        folder / "cuda-debian12-x86_64.list",
        "# NVIDIA\ndeb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] "
        "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/ /",
    )
    write(
        folder / "b.sources",
        "Types: deb\nURIs:\n https://nvidia.example/caf\N{LATIN SMALL LETTER E WITH ACUTE}\n\n"
        "Types: deb\nEnabled: no\nURIs: https://nvidia.example/off\n",
    )
    write(folder / "c.list.save", "deb https://nvidia.example/saved /\n")
    sources = look(gpu_host).nvidia.sources
    assert [(each.file.split("/")[-1], each.uri) for each in sources] == [  # type: ignore[union-attr]
        (
            "cuda-debian12-x86_64.list",
            "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/",
        ),
        ("pyinfra-gpu-nvidia.list", "http://mirror.example/gpu/debian12/x86_64/"),
        ("b.sources", "https://nvidia.example/caf\N{LATIN SMALL LETTER E WITH ACUTE}"),
    ]
    assert sources[0].signed_by == "/usr/share/keyrings/cuda-archive-keyring.gpg"  # type: ignore[index,union-attr]


@pytest.mark.skipif(not ROOT, reason="only root can take another user's place")
def test_what_a_plain_user_may_not_read_is_unknown() -> None:
    import shutil
    import tempfile

    from nvidia_tree import asked, furnish_nvidia

    base = Path(tempfile.mkdtemp(prefix="probe-"))
    try:
        base.chmod(0o755)
        tree = Tree(base / "host")
        furnish_nvidia(tree)
        list_ = tree.root / files.SOURCES[1:]
        log, rule = tree.root / LOG, tree.root / "etc/modprobe.d/pyinfra-gpu-nvidia.conf"
        for file in (list_, log, tree.root / system_files.KEYRING[1:]):
            file.chmod(0o600)
        (tree.root / "boot").chmod(0o700)
        record = tree.look(asked(tree), user=NOBODY)
        assert record.nvidia.sources == Unknown(f"no permission to read {list_}")
        assert record.nvidia.history == Unknown(f"no permission to read {log}")
        assert isinstance(record.nvidia.keyring, Unknown)
        assert record.kernel.installed == Unknown("no permission to look at /boot")
        assert record.kernel.newest is None
        assert record.nvidia.package("libcuda1") is not None
        (tree.root / "boot").chmod(0o755)
        rule.write_text("blacklist nouveau\n")
        os.utime(rule, (2**32, 2**32))  # some shells compare whole seconds
        rule.rename(rule.with_name("a.conf"))
        rule.with_name("a.conf").chmod(0)
        record = tree.look(asked(tree), user=NOBODY)
        assert record.kernel.initramfs == Unknown(
            f"no permission to read {rule.with_name('a.conf')}"
        )
        list_.parent.chmod(0o700)
        record = tree.look(asked(tree), user=NOBODY)
        assert record.nvidia.sources == Unknown(f"no permission to look at {list_.parent}")
    finally:
        shutil.rmtree(base)


def test_the_keyring_is_told_by_its_fingerprints(gpu_host: Tree) -> None:
    assert look(gpu_host).nvidia.keyring == (FINGERPRINT,)
    keyring = gpu_host.root / system_files.KEYRING[1:]
    keyring.write_bytes(KEY[:50])
    assert isinstance(look(gpu_host).nvidia.keyring, Unknown)
    keyring.write_bytes(bytes(70_000))
    assert isinstance(look(gpu_host).nvidia.keyring, Unknown)
    keyring.unlink()
    assert look(gpu_host).nvidia.keyring is None
    keyring.mkdir()
    assert look(gpu_host).nvidia.keyring is None


def test_the_log_tells_what_happened_when_and_by_what(gpu_host: Tree) -> None:
    history = look(gpu_host).nvidia.history
    assert [
        (each.when, each.action, each.name, each.old, each.new)
        for each in history  # type: ignore[union-attr]
    ] == [
        (
            *("2026-10-01T08:00:00", "Install", "linux-image-6.1.0-37-amd64"),
            *(None, "6.1.140-1"),
        ),
        ("2026-11-20T10:00:00", "Install", "libcuda1", None, "580.82.07-1"),
        ("2026-11-20T10:00:00", "Install", "dkms", None, "3.0.10-8"),
        ("2026-11-21T06:12:03", "Upgrade", "libcuda1", "580.82.07-1", "580.95.05-1"),
    ]
    last = history[-1]  # type: ignore[index,union-attr]
    assert (last.command, last.by) == ("/usr/bin/unattended-upgrade", None)
    assert history[1].by == "alice (1000)"  # type: ignore[index,union-attr]


def test_a_log_without_an_older_one_or_none_at_all_is_no_error(gpu_host: Tree) -> None:
    (gpu_host.root / f"{LOG}.1.gz").write_bytes(b"this is no gzip file")
    assert len(look(gpu_host).nvidia.history) == 3  # type: ignore[arg-type]
    (gpu_host.root / f"{LOG}.1.gz").unlink()
    (gpu_host.root / LOG).unlink()
    assert look(gpu_host).nvidia.history == ()
    write(gpu_host.root / f"{LOG}.1", "Start-Date: 2026-11-01  01:00:00\nInstall: gcc:x (1)\n")
    assert len(look(gpu_host).nvidia.history) == 1  # type: ignore[arg-type]


def test_of_a_long_log_the_last_changes_are_told(gpu_host: Tree) -> None:
    text = "".join(
        f"Start-Date: 2026-11-{day:02}  06:00:00\nCommandline: apt upgrade {day}\nUpgrade: "
        + ", ".join(f"libnvidia-{n}:amd64 (1, {day}), lib{n}:amd64 (1, 2)" for n in range(30))
        + "\nEnd-Date: x\n\n"
        for day in range(1, 21)
    )
    write(gpu_host.root / LOG, text)
    history = look(gpu_host).nvidia.history
    assert len(history) == 200  # type: ignore[arg-type]
    assert history[-1].new == "20"  # type: ignore[index,union-attr]
    assert history[0].when == "2026-11-14T06:00:00"  # type: ignore[index,union-attr]
    assert {each.action for each in history} == {"Upgrade"}  # type: ignore[union-attr]


def test_a_damaged_log_tells_what_can_be_read(gpu_host: Tree) -> None:
    odd = b"Start-Date: 2026-11-21  06:00:00\nCommandline: apt | caf\xc3\xa9 \x1b[0m\nUpgrade: "
    odd += b"libcuda1:amd64 (1, 2), nvidia-smi:amd64, cuda (, gcc:amd64 (4)\n"
    odd += (
        b"\0\xff binary\nInstall: dkms:amd64 (1)\nStart-Date: nonsense\nInstall: dkms:amd64 (2)\n"
    )
    (gpu_host.root / LOG).write_bytes(odd + b"Start-Date: 2026-11-22  0")
    (gpu_host.root / f"{LOG}.1.gz").write_bytes(gzip.compress(b"Upgrade: x"))
    history = look(gpu_host).nvidia.history
    assert ("libcuda1", "1", "2") in {(each.name, each.old, each.new) for each in history}  # type: ignore[union-attr]
    assert ("dkms", "1") in {(each.name, each.new) for each in history}  # type: ignore[union-attr]
    assert ("dkms", "2") not in {(each.name, each.new) for each in history}  # type: ignore[union-attr]
    assert str(history[0].command).startswith("apt ? caf")  # type: ignore[index,union-attr]


def test_settings_that_apt_cannot_read_are_told_in_its_words(tree: Tree) -> None:
    write(tree.root / "var/cache/apt/pkgcache.bin", "")
    assert tree.look().packages.settings is None
    write(tree.root / "etc/apt/apt.conf.d/99mine", "APT::Get { broken")
    said = "E: Syntax error /etc/apt/apt.conf.d/99mine:1: Extra junk at end of file"
    tree.tool("apt-config", f"echo '{said}' >&2; exit 100")
    os.utime(tree.root / "var/cache/apt/pkgcache.bin", (0, 0))
    assert tree.look().packages.settings == said
    (tree.root / "var/cache/apt/pkgcache.bin").unlink()
    assert tree.look().packages.settings == said, "apt-get clean takes the cache away"


def test_settings_are_not_asked_for_where_apt_has_read_them_since(tree: Tree) -> None:
    write(tree.root / "etc/apt/apt.conf.d/99mine", 'APT::Get "x";')
    os.utime(tree.root / "etc/apt/apt.conf.d/99mine", (0, 0))
    write(tree.root / "var/cache/apt/pkgcache.bin", "")
    tree.tool("apt-config", "exit 100")
    assert tree.look().packages.settings is None
