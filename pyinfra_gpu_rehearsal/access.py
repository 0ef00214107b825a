"""Who a host is and who may enter it: host keys, the lab's key, the client's configuration."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyinfra_gpu_rehearsal.base_image import BaseImage
from pyinfra_gpu_rehearsal.commands import remove_tree, run, write
from pyinfra_gpu_rehearsal.host import LabHost
from pyinfra_gpu_rehearsal.nvidia.hardware import write_hardware, write_kernel, write_programs
from pyinfra_gpu_rehearsal.nvidia.repository import NvidiaRepository
from pyinfra_gpu_rehearsal.state import write_atomically

KEY, KNOWN_HOSTS, CONFIG = "id_ed25519", "known_hosts", "ssh_config"
HOST_KEY = "etc/ssh/ssh_host_ed25519_key"
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


def write_identity(host: LabHost, image: BaseImage, server: str, directory: Path) -> None:
    """Write the layer that makes the shared image this very host: name, keys, package source.

    It lies under what the host writes, so that a host whose own files are removed is still
    itself, with the key its users know.

    + server: the address of the lab's file server
    """
    own = host.folder / "own"
    lab_key = make_key(directory / KEY, "rehearsal")
    make_key(own / HOST_KEY, host.name)
    write(own / "etc/hostname", f"{host.name}\n")
    write(own / "etc/hosts", f"127.0.0.1 localhost\n::1 localhost\n{host.address} {host.name}\n")
    source = f"deb [trusted=yes] {server}/debian {image.codename} main\n"
    write(own / "etc/apt/sources.list", source)
    home = own / "home/ubuntu"
    remove_tree(home)
    write(home / ".ssh/authorized_keys", f"{lab_key} rehearsal\n", 0o600)
    (home / ".ssh").chmod(0o700)
    # A folder that is in two layers has the upper one's owner and mode.
    home.chmod((image.root / "home/ubuntu").stat().st_mode & 0o7777)
    run(["chown", "-R", "1000:1000", home], purpose=f"making the home of {host.name}")


def write_machine(host: LabHost, image: BaseImage, repository: NvidiaRepository) -> None:
    """Write what a host with a simulated GPU has besides: its hardware, its kernel, its source."""
    if host.machine is None:
        return
    own = host.folder / "own"
    write_hardware(host.machine, host.folder / "hardware")
    write_programs(own)
    write_kernel(own, image.root, repository.archive)
    write(own / KERNELS_LIST, f"deb [trusted=yes] {repository.server}/kernels ./\n")


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
            f'    IdentityFile "{directory / KEY}"\n'
            "    IdentitiesOnly yes\n"
            f'    UserKnownHostsFile "{directory / KNOWN_HOSTS}"\n'
            "    StrictHostKeyChecking yes\n"
        )
    write_atomically(directory / KNOWN_HOSTS, "\n".join(known) + "\n")
    write_atomically(directory / CONFIG, "\n".join(blocks))
