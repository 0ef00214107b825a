"""What the probe tells of kernels: which are there, with which module, headers and initramfs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from nvidia_tree import NEWEST, RUNNING, VERSION, gpu_host_fixture, look, modules  # noqa: F401
from probing import Tree, tree_fixture, write  # noqa: F401

from pyinfra_gpu.facts.fields import Unknown

RULES = "etc/modprobe.d"


def test_kernels_are_told_in_the_order_of_their_versions(gpu_host: Tree) -> None:
    for name in ("6.1.0-40-amd64.dpkg-new", "6.1.0-99-amd64.old", "6.1.0-9-amd64~"):
        write(gpu_host.root / f"boot/vmlinuz-{name}", "")
    kernel = look(gpu_host).kernel
    assert kernel.installed == ("6.1.0-9-amd64", RUNNING, NEWEST)
    assert kernel.newest == NEWEST


def test_the_running_and_the_newest_kernel_have_a_module_each_or_not(
    gpu_host: Tree,
) -> None:
    assert look(gpu_host).kernel.modules == {RUNNING: VERSION, NEWEST: VERSION}
    modules(gpu_host, running="580.82.07 NVIDIA")
    assert look(gpu_host).kernel.modules == {RUNNING: "580.82.07", NEWEST: None}
    modules(gpu_host, newest=f"{VERSION} Dual MIT/GPL")
    assert look(gpu_host).kernel.modules == {RUNNING: None, NEWEST: VERSION}


def test_a_module_that_cannot_be_asked_for_makes_them_unknown(gpu_host: Tree) -> None:
    text = f"[ \"$1\" = -k ] && {{ echo 'it broke' >&2; exit 1; }}\necho 'version: {VERSION}'"
    gpu_host.tool("modinfo", text)
    record = look(gpu_host)
    assert record.kernel.modules == Unknown("modinfo: it broke")
    assert record.driver.on_disk == VERSION
    assert record.kernel.installed == ("6.1.0-9-amd64", RUNNING, NEWEST)


def test_headers_are_there_where_a_makefile_is(gpu_host: Tree) -> None:
    assert look(gpu_host).kernel.headers == {RUNNING: True, NEWEST: True}
    # What a removed headers package leaves: the kernel's link to a folder that is no more.
    build = gpu_host.root / f"lib/modules/{NEWEST}/build"
    (build / "Makefile").unlink()
    build.rmdir()
    build.symlink_to("/usr/src/gone")
    assert look(gpu_host).kernel.headers == {RUNNING: True, NEWEST: False}


def test_where_boot_shows_no_kernel_the_running_one_is_looked_at(
    gpu_host: Tree,
) -> None:
    for file in (gpu_host.root / "boot").glob("vmlinuz-*"):
        file.unlink()
    kernel = look(gpu_host).kernel
    assert (kernel.installed, kernel.newest) == ((), None)
    assert kernel.modules == {RUNNING: VERSION}
    assert kernel.headers == {RUNNING: True}
    assert kernel.initramfs == "fresh"
    for file in (gpu_host.root / "boot").iterdir():
        file.unlink()
    (gpu_host.root / "boot").rmdir()
    kernel = look(gpu_host).kernel
    assert (kernel.installed, kernel.initramfs) == ((), "absent")


# file in /etc/modprobe.d, its text, and what a file newer than the image makes of that image
NEWER = {
    ("pyinfra-gpu-nvidia.conf", "options nvidia x=1\n"): "stale",
    ("a.conf", "blacklist nouveau\n"): "stale",
    ("a.conf", "# x\n\n  blacklist\tnova_core"): "stale",
    ("a.conf", "blacklist nova-drm\n"): "stale",
    ("a.conf", "blacklist nova\n"): "stale",
    ("a.conf", "blacklist pcspkr\n# blacklist nouveau\n"): "fresh",
    ("a.conf", "alias nova x\n"): "fresh",
    ("a.conf", "blacklist novatel\n"): "fresh",
    ("a.conf.bak", "blacklist nouveau\n"): "fresh",
}


@pytest.mark.parametrize(("name", "text"), sorted(NEWER))
def test_an_image_older_than_a_rule_that_belongs_in_it_is_stale(
    gpu_host: Tree, name: str, text: str
) -> None:
    rule = write(gpu_host.root / RULES / name, text)
    image = gpu_host.root / f"boot/initrd.img-{NEWEST}"
    os.utime(image, (1_000_000, 1_000_000))
    os.utime(gpu_host.root / f"boot/initrd.img-{RUNNING}", (1, 1))
    os.utime(rule, (1_000_001, 1_000_001))
    assert look(gpu_host).kernel.initramfs == NEWER[name, text]
    os.utime(rule, (999_999, 999_999))
    assert look(gpu_host).kernel.initramfs == "fresh"


def test_what_dkms_can_build_from_is_told(gpu_host: Tree) -> None:
    assert look(gpu_host).kernel.sources == ()
    write(gpu_host.root / f"usr/src/nvidia-{VERSION}/dkms.conf", "")
    at = gpu_host.root / f"var/lib/dkms/nvidia/{VERSION}"
    at.mkdir(parents=True)
    (at / "source").symlink_to(gpu_host.root / f"usr/src/nvidia-{VERSION}")
    assert look(gpu_host).kernel.sources == (VERSION,)
    (gpu_host.root / f"usr/src/nvidia-{VERSION}/dkms.conf").unlink()
    assert look(gpu_host).kernel.sources == ()
