"""A throwaway host with real packages of a driver: its archive, its kernel's name, its bus.

Everything on it is real but the GPUs on its PCI bus, and that it believes another kernel to run:
the one whose packages it has. Nothing can be loaded into the kernel that does run.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import run
from pyinfra_gpu_rehearsal.host import LabHost
from pyinfra_gpu_rehearsal.lab import Lab
from pyinfra_gpu_rehearsal.nvidia.hardware import write_hardware
from pyinfra_gpu_rehearsal.nvidia.machines import machine_named
from pyinfra_gpu_rehearsal.nvidia.signing import SigningKey
from pyinfra_gpu_rehearsal.real.archive import KEYRING, Wanted, lay_out

PLACE = "archive"  # below what the lab serves
SOURCE = Path(__file__).parent / "on_host/kernel_release.c"
LIBRARY = "usr/lib/rehearsal/kernel_release.so"


def furnish(
    lab: Lab,
    host: LabHost,
    packages: dict[str, list[Path]],
    wanted: tuple[Wanted, ...],
    *,
    release: str,
    machine: str,
) -> None:
    """Make HOST, which is bare and without GPUs, one that has this archive, kernel and bus.

    + release: of the kernel that it is to believe in; its package has to be in the archive
    + machine: a key of nvidia.machines.MACHINES, whose GPUs are on its bus

    Its power is cut meanwhile, and the kernel's package is installed at the end.
    """
    host.power_off()
    key = SigningKey(lab.directory / "archive-key")
    key.ensure("pyinfra-gpu rehearsal: the distribution's key")
    lay_out(packages, wanted, lab.directory / "www" / PLACE, key)
    own = host.folder / "own"
    (own / KEYRING).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(key.public, own / KEYRING)
    lines = [f"deb [signed-by=/{KEYRING}] {lab.url}/{PLACE} {each.suite} main\n" for each in wanted]
    (own / "etc/apt/sources.list").write_text("".join(lines))
    _believe(own, host, release, machine)
    host.power_on()
    host.wait_ready()
    apt = "DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends"
    host.run(f"{apt} update && {apt} install linux-image-{release} initramfs-tools", timeout=600)


def _believe(own: Path, host: LabHost, release: str, machine: str) -> None:
    write_hardware(machine_named(machine), host.folder / "hardware")
    (host.folder / "hardware/osrelease").write_text(f"{release}\n")
    library = own / LIBRARY
    library.parent.mkdir(parents=True, exist_ok=True)
    words: list[str | Path] = ["-shared", "-fPIC", f'-DRELEASE="{release}"', "-o", library, SOURCE]
    run(["gcc", "-O1", *words], purpose=f"compiling {SOURCE.name}")
    (own / "etc/ld.so.preload").write_text(f"/{LIBRARY}\n")
