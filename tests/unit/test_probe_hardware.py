"""What the probe tells of the machine: GPUs, driver, Secure Boot, processors, release."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from nvidia_tree import ABI, linker_cache, modules
from probing import Tree, tree_fixture, write  # noqa: F401

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import PciGpu

UNUSED = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
GEFORCE = (
    "0x00000000de000000 0x00000000deffffff 0x0000000000040200\n"
    "0x0000007000000000 0x00000077ffffffff 0x000000000014220c\n"
    f"{UNUSED}0x0000007800000000 0x0000007801ffffff 0x000000000014220c\n{UNUSED}"
    "0x000000000000f000 0x000000000000f07f 0x0000000000040101\n"
)
HOPPER = (
    "0x0000382002000000 0x0000382002ffffff 0x000000000014220c\n"
    f"{UNUSED}0x0000380000000000 0x0000381fffffffff 0x000000000014220c\n{UNUSED}"
    f"0x0000382000000000 0x0000382001ffffff 0x000000000014220c\n{UNUSED}"
)


def device(tree: Tree, address: str, **files: str) -> Path:
    """A device on the PCI bus."""
    folder = tree.root / "sys/bus/pci/devices" / address
    for name, text in files.items():
        write(folder / name.rstrip("_"), f"{text.rstrip()}\n")
    return folder


def bind(tree: Tree, folder: Path, driver: str) -> None:
    """Give a device its driver, as sysfs shows it."""
    (tree.root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
    (folder / "driver").symlink_to(f"../../drivers/{driver}")


def test_gpus_are_told_with_their_driver_and_window(tree: Tree) -> None:
    first = device(
        tree, "0000:01:00.0", vendor="0x10de", device="0x2b85", class_="0x030000", resource=GEFORCE
    )
    bind(tree, first, "nvidia")
    device(
        tree, "0000:06:00.0", vendor="0x10de", device="0x2330", class_="0x030200", resource=HOPPER
    )
    # Not GPUs: the sound device of the same card, an NVSwitch, another maker's display.
    device(tree, "0000:01:00.1", vendor="0x10de", device="0x22e8", class_="0x040300")
    device(tree, "0000:07:00.0", vendor="0x10de", device="0x22a3", class_="0x068000")
    device(tree, "0000:02:00.0", vendor="0x1234", device="0x1111", class_="0x030000")
    assert tree.look().gpus.devices == (
        PciGpu(
            address="0000:01:00.0",
            vendor="0x10de",
            device="0x2b85",
            class_="0x030000",
            driver="nvidia",
            bar1_mib=32768,
        ),
        PciGpu(
            address="0000:06:00.0",
            vendor="0x10de",
            device="0x2330",
            class_="0x030200",
            driver=None,
            bar1_mib=131072,
        ),
    )


def test_a_window_that_the_firmware_did_not_assign_is_none(tree: Tree) -> None:
    rows = "0xde000000 0xdeffffff 0x40200\n" + UNUSED * 2 + "0x7800000000 0x7801ffffff 0x14220c\n"
    device(tree, "0000:01:00.0", vendor="0x10de", device="0x2b85", class_="0x030000", resource=rows)
    assert tree.look().gpus.devices[0].bar1_mib is None  # type: ignore[index,union-attr]


def test_a_device_without_a_list_of_windows_has_an_unknown_one(tree: Tree) -> None:
    device(tree, "0000:01:00.0", vendor="0x10de", device="0x2b85", class_="0x030000")
    (gpu,) = tree.look().gpus.devices  # type: ignore[misc]
    assert gpu.bar1_mib == Unknown("the device's resource file could not be read")


def test_a_device_that_cannot_be_read_makes_the_list_unknown(tree: Tree) -> None:
    device(tree, "0000:01:00.0", vendor="0x10de", device="0x2b85")
    reason = f"{tree.root}/sys/bus/pci/devices/0000:01:00.0 could not be read"
    assert tree.look().gpus.devices == Unknown(reason)


def test_a_machine_without_a_pci_bus_has_no_gpu_and_one_without_sysfs_is_unknown(
    tree: Tree,
) -> None:
    (tree.root / "sys/bus/pci").rename(tree.base / "pci")
    assert tree.look().gpus.devices == ()
    (tree.root / "sys").rename(tree.base / "sys")
    record = tree.look()
    assert record.gpus.devices == Unknown("/sys/bus is not there")
    assert record.driver.loaded == Unknown("/sys/module is not there")
    assert record.driver.nouveau == Unknown("/sys/module is not there")
    assert isinstance(record.system.secure_boot, Unknown)
    assert isinstance(record.system.cpu_count, Unknown)


LINES = {
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build": True,
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23": False,
    "something else": Unknown("/proc/driver/nvidia/version begins with 'something else'"),
}


@pytest.mark.parametrize("line", sorted(LINES))
def test_the_flavour_of_the_loaded_module_is_told(tree: Tree, line: str) -> None:
    write(tree.root / "sys/module/nvidia/version", "580.95.05\n")
    write(tree.root / "proc/driver/nvidia/version", f"{line}\nGCC version: 13.3.0\n")
    driver = tree.look().driver
    assert driver.loaded == "580.95.05"
    assert driver.open_modules == LINES[line]


def test_a_loaded_module_without_a_version_is_unknown(tree: Tree) -> None:
    (tree.root / "sys/module/nvidia").mkdir()
    reason = Unknown("the module nvidia is loaded but names no version")
    assert tree.look().driver.loaded == reason


def test_the_module_on_disk_and_nouveau_are_told(tree: Tree) -> None:
    modules(tree, running="580.95.05 Dual MIT/GPL")
    (tree.root / "sys/module/nouveau").mkdir()
    driver = tree.look().driver
    assert (driver.on_disk, driver.on_disk_open, driver.loaded) == ("580.95.05", True, None)
    assert (driver.nouveau, driver.nova) == (True, False)
    modules(tree, running="580.95.05 NVIDIA")
    (tree.root / "sys/module/nova_core").mkdir()
    driver = tree.look().driver
    assert (driver.on_disk_open, driver.nova) == (False, True)


def test_libcuda_is_the_file_behind_the_link_for_this_architecture(tree: Tree) -> None:
    lib = tree.root / "usr/lib"
    write(lib / "libcuda.so.580.95.05", "")
    (lib / "libcuda.so.1").symlink_to("libcuda.so.580.95.05")
    linker_cache(
        tree,
        "libcudart.so.13 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.13",
        f"libcuda.so.1 (libc6) => {lib}/i386/libcuda.so.1",
        f"libcuda.so.1 (libc6,{ABI}) => {lib}/libcuda.so.1",
        f"libcuda.so (libc6,{ABI}) => {lib}/libcuda.so",
    )
    assert tree.look().driver.libcuda == str(lib / "libcuda.so.580.95.05")


def test_a_linker_cache_that_names_a_library_that_is_gone_is_unknown(
    tree: Tree,
) -> None:
    linker_cache(tree, f"libcuda.so.1 (libc6,{ABI}) => /gone/libcuda.so.1")
    reason = Unknown("ldconfig names /gone/libcuda.so.1, which is not there")
    assert tree.look().driver.libcuda == reason


VARIABLE = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@pytest.mark.parametrize(
    ("content", "on"),
    [
        (b"\x06\0\0\0\x01", True),
        (b"\x06\0\0\0\0", False),
        (b"\x06\0\0\0\x07", Unknown("the firmware's SecureBoot variable holds '7'")),
    ],
)
def test_secure_boot_is_the_fifth_byte_of_the_firmwares_variable(
    tree: Tree, content: bytes, on: object
) -> None:
    write(tree.root / VARIABLE, content)
    assert tree.look().system.secure_boot == on


def test_secure_boot_that_cannot_be_seen_is_unknown(tree: Tree) -> None:
    (tree.root / "sys/firmware/efi/efivars").mkdir(parents=True)
    assert isinstance(tree.look().system.secure_boot, Unknown)
    write(tree.root / VARIABLE, b"\x06\0")
    assert isinstance(tree.look().system.secure_boot, Unknown)


def test_firmware_that_knows_no_secure_boot_has_it_off(tree: Tree) -> None:
    write(tree.root / "sys/firmware/efi/efivars/BootOrder-1", b"\x07\0\0\0")
    assert tree.look().system.secure_boot is False


def test_a_release_without_a_number_has_none_and_one_without_a_file_is_unknown(
    tree: Tree,
) -> None:
    (tree.root / "etc/os-release").unlink()
    write(tree.root / "usr/lib/os-release", "PRETTY_NAME='It''s \"Debian\" sid'\nID=debian")
    system = tree.look().system
    assert (system.os_id, system.os_version) == ("debian", None)
    assert system.os_name == 'Its "Debian" sid'
    (tree.root / "usr/lib/os-release").unlink()
    assert isinstance(tree.look().system.os_id, Unknown)


def test_who_logged_in_without_sudo_is_who_runs_the_probe(tree: Tree) -> None:
    tree.environment["SUDO_USER"] = ""
    assert tree.look().system.user == pwd.getpwuid(os.geteuid()).pw_name
