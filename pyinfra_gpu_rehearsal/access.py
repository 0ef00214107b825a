"""Who a host is and who may enter it: host keys, the lab's key, the client's configuration."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pyinfra_gpu_rehearsal.base_image import BaseImage
from pyinfra_gpu_rehearsal.commands import remove_tree, run
from pyinfra_gpu_rehearsal.nvidia.hardware import write_hardware, write_kernel, write_programs
from pyinfra_gpu_rehearsal.nvidia.repository import NvidiaRepository
from pyinfra_gpu_rehearsal.state import write_atomically

if TYPE_CHECKING:
    from pyinfra_gpu_rehearsal.host import LabHost

KEY, KNOWN_HOSTS, CONFIG = "id_ed25519", "known_hosts", "ssh_config"
HOST_KEY = "etc/ssh/ssh_host_ed25519_key"
ARCHIVE_KEY = "usr/share/keyrings/rehearsal-archive.gpg"
KERNELS_KEY = "usr/share/keyrings/rehearsal-kernels.gpg"
KERNELS_LIST = "etc/apt/sources.list.d/rehearsal-kernels.list"


def make_key(path: Path, comment: str) -> str:
    """Make sure the SSH key PATH is there; return its public part (type and key)."""
    public = path.with_name(f"{path.name}.pub")
    if not (path.exists() and public.exists()):
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        words: list[str | Path] = ["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path]
        run(["ssh-keygen", *words], purpose=f"making the key {path}")
    return " ".join(public.read_text().split()[:2])


def _put(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def write_identity(host: LabHost, image: BaseImage, repository: str, directory: Path) -> None:
    """Write the layer that makes the shared image this very host: name, keys, package source.

    It lies under what the host writes, so that a host whose own files are removed is still
    itself, with the key its users know.
    """
    own = host.folder / "own"
    lab_key = make_key(directory / KEY, "rehearsal")
    make_key(own / HOST_KEY, host.name)
    _put(own / "etc/hostname", f"{host.name}\n")
    inner = host.subnet.address(host.last)
    _put(own / "etc/hosts", f"127.0.0.1 localhost\n::1 localhost\n{inner} {host.name}\n")
    _copy(image.key, own / ARCHIVE_KEY)
    line = f"deb [signed-by=/{ARCHIVE_KEY}] {repository} {image.codename} main\n"
    _put(own / "etc/apt/sources.list", line)
    home = own / "home/ubuntu"
    remove_tree(home)
    _put(home / ".ssh/authorized_keys", f"{lab_key} rehearsal\n", 0o600)
    (home / ".ssh").chmod(0o700)
    # A folder that is in two layers has the upper one's owner and mode.
    home.chmod((image.root / "home/ubuntu").stat().st_mode & 0o7777)
    run(["chown", "-R", "1000:1000", home], purpose=f"making the home of {host.name}")


def write_machine(host: LabHost, image: BaseImage, repository: NvidiaRepository) -> None:
    """Write what a host with a simulated GPU has besides: its hardware, its kernel, its source.

    What was done to its hardware stays done.
    """
    if host.machine is None:
        return
    own, hardware = host.folder / "own", host.folder / "hardware"
    if not hardware.exists():
        write_hardware(host.machine, hardware)
    write_programs(own)
    write_kernel(own, image.root, repository.archive.kernels)
    _copy(repository.distribution_key.public, own / KERNELS_KEY)
    _put(own / KERNELS_LIST, f"deb [signed-by=/{KERNELS_KEY}] {repository.server}/kernels ./\n")


def _quoted(path: Path) -> str:
    return f'"{path}"' if " " in str(path) else str(path)


def write_client_files(hosts: Iterable[LabHost], directory: Path) -> None:
    """Write the SSH client's configuration and the hosts' known keys into DIRECTORY."""
    known: list[str] = []
    blocks: list[str] = []
    for host in hosts:
        public = host.folder / "own" / f"{HOST_KEY}.pub"
        known.append(f"{host.address} {' '.join(public.read_text().split()[:2])}")
        blocks.append(
            f"Host {host.name}\n"
            f"    HostName {host.address}\n"
            f"    Port {host.port}\n"
            f"    User {host.user}\n"
            f"    IdentityFile {_quoted(directory / KEY)}\n"
            "    IdentitiesOnly yes\n"
            f"    UserKnownHostsFile {_quoted(directory / KNOWN_HOSTS)}\n"
            "    StrictHostKeyChecking yes\n"
        )
    write_atomically(directory / KNOWN_HOSTS, "\n".join(known) + "\n")
    write_atomically(directory / CONFIG, "\n".join(blocks))
