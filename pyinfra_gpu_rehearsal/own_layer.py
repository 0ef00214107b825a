"""The layer that makes the shared image one very host: its name, its keys, its hardware.

It lies under what the host writes, so that a host whose own files are removed is still itself,
with the key its users know.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path

from pyinfra_gpu_rehearsal.base_image import BaseImage
from pyinfra_gpu_rehearsal.commands import point, remove_tree, run, write, write_atomically
from pyinfra_gpu_rehearsal.host import LabHost
from pyinfra_gpu_rehearsal.nvidia.machines import Machine
from pyinfra_gpu_rehearsal.nvidia.packages import ON_HOST, running_kernel

KEY, KNOWN_HOSTS, CONFIG = "id_ed25519", "known_hosts", "ssh_config"
HOST_KEY = "etc/ssh/ssh_host_ed25519_key"
SECURE_BOOT = "efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
UNIT = "rehearsal-cold-plug.service"
PROGRAMS = {
    "usr/sbin/modprobe": "simulated_kernel.py",
    "usr/sbin/rmmod": "simulated_kernel.py",
    "usr/lib/rehearsal/rehearsal-cold-plug": "simulated_kernel.py",
    "usr/sbin/update-initramfs": "update-initramfs",
}
"""What plays kernel and firmware on a host with simulated GPUs."""


def _key(path: Path, comment: str) -> str:
    """Make sure that the SSH key PATH is there; return its public part (type and key)."""
    public = path.with_name(f"{path.name}.pub")
    if not (path.exists() and public.exists()):
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        words: list[str | Path] = ["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path]
        run(["ssh-keygen", *words], purpose=f"making the key {path}")
    return " ".join(public.read_text().split()[:2])


def write_identity(host: LabHost, image: BaseImage, server: str, directory: Path) -> None:
    """Write a host's name, its keys and where it has its packages from.

    + server: the address of the lab's file server; directory: the lab's
    """
    own = host.folder / "own"
    lab_key = _key(directory / KEY, "rehearsal")
    _key(own / HOST_KEY, host.name)
    write(own / "etc/hostname", f"{host.name}\n")
    write(own / "etc/hosts", f"127.0.0.1 localhost\n::1 localhost\n{host.address} {host.name}\n")
    sources = [f"deb [trusted=yes] {server}/{name} ./\n" for name in ("debian", "kernels")]
    write(own / "etc/apt/sources.list", "".join(sources[: 2 if host.machine else 1]))
    home = own / "home/ubuntu"
    remove_tree(home)
    write(home / ".ssh/authorized_keys", f"{lab_key} rehearsal\n", 0o600)
    (home / ".ssh").chmod(0o700)
    # A folder that is in two layers has the upper one's owner and mode.
    home.chmod((image.root / "home/ubuntu").stat().st_mode & 0o7777)
    run(["chown", "-R", "1000:1000", home], purpose=f"making the home of {host.name}")


def write_client_files(hosts: Iterable[LabHost], directory: Path) -> None:
    """Write the SSH client's configuration and the hosts' known keys into DIRECTORY."""
    known, blocks = "", ""
    for host in hosts:
        known += f"{host.address} {_key(host.folder / 'own' / HOST_KEY, host.name)}\n"
        blocks += (
            f"Host {host.name}\n"
            f"    HostName {host.address}\n"
            f"    Port {host.port}\n"
            f"    User {host.user}\n"
            f'    IdentityFile "{directory / KEY}"\n'
            "    IdentitiesOnly yes\n"
            f'    UserKnownHostsFile "{directory / KNOWN_HOSTS}"\n'
            "    StrictHostKeyChecking yes\n\n"
        )
    write_atomically(directory / KNOWN_HOSTS, known)
    write_atomically(directory / CONFIG, blocks)


def write_hardware(machine: Machine, folder: Path) -> None:
    """Write the PCI bus and the firmware of MACHINE, without Secure Boot, into FOLDER, as new.

    A boot copies the folder into the host's memory: see nvidia/on_host/connect_gpus.sh.
    """
    remove_tree(folder)
    for slot in range(machine.count):
        for name, text in machine.device_files(slot).items():
            write(folder / "pci" / machine.address(slot) / name, text)
    # Readable while booting and running; the value follows.
    write(folder / "firmware" / SECURE_BOOT, "\x06\0\0\0\0")


def write_machine(host: LabHost, machine: Machine, image: BaseImage, archive: Path) -> None:
    """Write what a host with simulated GPUs has besides: its hardware and its running kernel.

    + archive: the folder of the simulated packages
    """
    own = host.folder / "own"
    write_hardware(machine, host.folder / "hardware")
    for name, source in PROGRAMS.items():
        write(own / name, ON_HOST / source, 0o755)
    units = own / "etc/systemd/system"
    write(units / UNIT, ON_HOST / UNIT)
    point(units / "sysinit.target.wants" / UNIT, Path("..", UNIT))
    # The kernel, its entry in dpkg's list, and an initramfs.
    tree, package, dpkg = archive / "kernel", running_kernel(), Path("var/lib/dpkg")
    shutil.copytree(tree, own, dirs_exist_ok=True, symlinks=True)
    first, rest = package.control().split("\n", 1)
    entry = f"{first}\nStatus: install ok installed\n{rest}"
    write(own / dpkg / "status", (image.root / dpkg / "status").read_text() + "\n" + entry)
    paths = sorted(path.relative_to(tree) for path in tree.rglob("*"))
    listed = "/.\n" + "".join(f"/{path}\n" for path in paths)
    write(own / dpkg / f"info/{package.name}.list", listed)
    initrd = own / "boot" / f"initrd.img-{package.values['release']}"
    with tarfile.open(initrd, "w:gz") as initramfs:
        for folder in ("etc/modprobe.d", "usr/lib/modprobe.d"):
            if (image.root / folder).exists():
                initramfs.add(image.root / folder, arcname=folder)
