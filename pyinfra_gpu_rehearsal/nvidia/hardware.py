"""The simulated hardware of a host: its PCI bus, its firmware, and what its kernel does.

All of it is in two places: the folder `hardware` of the host, which a boot copies into the
machine's memory, and the host's own layer of files, where the programs are that play the kernel.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from pyinfra_gpu_rehearsal.nvidia.debs import ON_HOST
from pyinfra_gpu_rehearsal.nvidia.kernels import Kernels
from pyinfra_gpu_rehearsal.nvidia.machines import Machine

CONNECT_GPUS = ON_HOST / "connect_gpus.sh"
"""Runs in the root folder of a host that boots; see on_host/boot.sh."""

EFI_GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
SECURE_BOOT = f"efi/efivars/SecureBoot-{EFI_GLOBAL}"
MOK_LIST = "efi/efivars/MokListRT-605dab50-e046-4300-abb6-3dd810dd8b23"
ATTRIBUTES = b"\x06\0\0\0"  # readable while booting and running; the value follows

UNIT = "rehearsal-cold-plug.service"
PROGRAMS = {
    "usr/sbin/modprobe": "simulated_kernel.py",
    "usr/sbin/rmmod": "simulated_kernel.py",
    "usr/lib/rehearsal/rehearsal-cold-plug": "simulated_kernel.py",
    "usr/sbin/update-initramfs": "update-initramfs",
    "usr/bin/mokutil": "mokutil",
}


def write_hardware(machine: Machine, folder: Path) -> None:
    """Write the bus and the firmware of MACHINE into FOLDER, as new."""
    shutil.rmtree(folder, ignore_errors=True)
    for slot, address in enumerate(machine.addresses()):
        device = folder / "pci" / address
        device.mkdir(parents=True)
        card = machine.card
        content = {
            "vendor": "0x10de\n",
            "device": f"{card.device}\n",
            "class": "0x030000\n" if card.is_geforce else "0x030200\n",
            "resource": card.resource(slot),
            "rehearsal": card.description(address),
        }
        for name, text in content.items():
            (device / name).write_text(text)
    write_secure_boot(folder / "firmware", on=False, enrolled=False)


def write_secure_boot(firmware: Path, *, on: bool, enrolled: bool) -> None:
    """Write what FIRMWARE says of Secure Boot, and whether the machine's own key is enrolled."""
    variable = firmware / SECURE_BOOT
    variable.parent.mkdir(parents=True, exist_ok=True)
    variable.write_bytes(ATTRIBUTES + bytes([on]))
    keys = firmware / MOK_LIST
    if enrolled:
        keys.write_bytes(ATTRIBUTES + b"rehearsal")
    else:
        keys.unlink(missing_ok=True)


def _put(path: Path, content: Path, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(content, path)
    path.chmod(mode)


def write_programs(own: Path) -> None:
    """Write the programs that play kernel and firmware into the layer OWN of a host."""
    for name, source in PROGRAMS.items():
        _put(own / name, ON_HOST / source, 0o755)
    unit = own / "etc/systemd/system" / UNIT
    _put(unit, ON_HOST / UNIT, 0o644)
    wants = own / "etc/systemd/system/sysinit.target.wants" / UNIT
    wants.parent.mkdir(parents=True, exist_ok=True)
    wants.unlink(missing_ok=True)
    wants.symlink_to(f"../{UNIT}")


def write_kernel(own: Path, base: Path, kernels: Kernels) -> None:
    """Write the running kernel, its initramfs and its entry in dpkg's list into the layer OWN.

    + base: the tree below that layer.
    """
    shutil.copytree(kernels.running_tree, own, dirs_exist_ok=True, symlinks=True)
    status = own / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True, exist_ok=True)
    status.write_text((base / "var/lib/dpkg/status").read_text() + "\n" + kernels.installed_stanza)
    listed = own / "var/lib/dpkg/info" / f"{kernels.running_package}.list"
    listed.parent.mkdir(parents=True, exist_ok=True)
    image = own / "boot" / f"initrd.img-{kernels.release}"
    with tarfile.open(image, "w:gz") as archive:
        for folder in ("etc/modprobe.d", "usr/lib/modprobe.d"):
            if (base / folder).exists():
                archive.add(base / folder, arcname=folder)
    paths = [p.relative_to(kernels.running_tree) for p in kernels.running_tree.rglob("*")]
    listed.write_text("/.\n" + "".join(f"/{path}\n" for path in sorted(paths)))
