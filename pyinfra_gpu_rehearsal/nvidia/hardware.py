"""The simulated hardware of a host: its PCI bus, its firmware, and what its kernel does.

All of it is in two places: the folder `hardware` of the host, which a boot copies into the
machine's memory, and the host's own layer of files, where the programs are that play the kernel.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import point, remove_tree, write
from pyinfra_gpu_rehearsal.nvidia.machines import Machine
from pyinfra_gpu_rehearsal.nvidia.packages import ON_HOST, Archive

CONNECT_GPUS = ON_HOST / "connect_gpus.sh"
"""Runs in the root folder of a host that boots; see on_host/boot.sh."""

SECURE_BOOT = "efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

UNIT = "rehearsal-cold-plug.service"
PROGRAMS = {
    "usr/sbin/modprobe": "simulated_kernel.py",
    "usr/sbin/rmmod": "simulated_kernel.py",
    "usr/lib/rehearsal/rehearsal-cold-plug": "simulated_kernel.py",
    "usr/sbin/update-initramfs": "update-initramfs",
}


def write_hardware(machine: Machine, folder: Path) -> None:
    """Write the bus and the firmware of MACHINE, without Secure Boot, into FOLDER, as new."""
    remove_tree(folder)
    card = machine.card
    for slot, address in enumerate(machine.addresses()):
        device = folder / "pci" / address
        write(device / "vendor", "0x10de\n")
        write(device / "device", f"{card.device}\n")
        write(device / "class", "0x030000\n" if card.is_geforce else "0x030200\n")
        write(device / "resource", card.resource(slot))
        write(device / "rehearsal", card.description(address))
    # Readable while booting and running; the value follows.
    write(folder / "firmware" / SECURE_BOOT, "\x06\0\0\0\0")


def write_programs(own: Path) -> None:
    """Write the programs that play kernel and firmware into the layer OWN of a host."""
    for name, source in PROGRAMS.items():
        write(own / name, ON_HOST / source, 0o755)
    units = own / "etc/systemd/system"
    write(units / UNIT, ON_HOST / UNIT)
    point(units / "sysinit.target.wants" / UNIT, Path("..", UNIT))


def write_kernel(own: Path, base: Path, archive: Archive) -> None:
    """Write the running kernel, its initramfs and its entry in dpkg's list into the layer OWN.

    + base: the tree below that layer.
    """
    tree, package, dpkg = archive.kernel_tree, archive.kernel, Path("var/lib/dpkg")
    shutil.copytree(tree, own, dirs_exist_ok=True, symlinks=True)
    first, rest = package.control().split("\n", 1)
    entry = f"{first}\nStatus: install ok installed\n{rest}"
    write(own / dpkg / "status", (base / dpkg / "status").read_text() + "\n" + entry)
    paths = sorted(path.relative_to(tree) for path in tree.rglob("*"))
    listed = "/.\n" + "".join(f"/{path}\n" for path in paths)
    write(own / dpkg / f"info/{package.name}.list", listed)
    image = own / "boot" / f"initrd.img-{package.values['release']}"
    with tarfile.open(image, "w:gz") as initramfs:
        for folder in ("etc/modprobe.d", "usr/lib/modprobe.d"):
            if (base / folder).exists():
                initramfs.add(base / folder, arcname=folder)
