"""Whether this machine can make throwaway hosts, and what it needs for that."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from pyinfra_gpu_rehearsal.base_image import os_release
from pyinfra_gpu_rehearsal.commands import LabError, Say, run, search_path
from pyinfra_gpu_rehearsal.control_group import lab_group

# Program -> the Debian package it is in.
PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "unshare": "util-linux",
    "ssh-keygen": "openssh-client",
    "git": "git",
    "gpg": "gnupg",
}


def missing_packages(*, gpu: bool = False) -> list[str]:
    """Return the Debian packages that are needed and not there.

    + gpu: also what simulated GPUs need: their programs are compiled
    """
    search = search_path(os.environ.get("PATH", os.defpath))
    needed = PROGRAMS | ({"gcc": "gcc"} if gpu else {})
    missing = {pkg for name, pkg in needed.items() if shutil.which(name, path=search) is None}
    if gpu and not Path("/usr/include/stdio.h").exists():
        missing.add("libc6-dev")  # which gcc only recommends
    return sorted(missing)


def ensure_packages(say: Say, *, gpu: bool = False) -> None:
    """Install, as root with apt, the Debian packages that are needed and missing.

    + gpu: also what simulated GPUs need.

    Raises LabError naming them in one line where they cannot be installed.
    """
    install_packages(missing_packages(gpu=gpu), say, whose="throwaway hosts")


def install_packages(packages: list[str], say: Say, *, whose: str) -> None:
    """Install Debian packages, as root with apt.

    + whose: who needs them, e.g. "the tests"

    Raises LabError naming them in one line where they cannot be installed.
    """
    if not packages:
        return
    line = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sudo = "" if os.geteuid() == 0 else "sudo "
        raise LabError(f"{whose} need some packages: run `{sudo}{' '.join(line)}`")
    say(f"installing the Debian packages {', '.join(packages)} ...")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = [*line, "-o", "DPkg::Lock::Timeout=120"]
    if run(command, purpose="", env=env, timeout=900, check=False).returncode != 0:
        run(["apt-get", "update"], purpose="apt-get update", env=env, timeout=300)
        run(command, purpose=" ".join(line), env=env, timeout=900)


def available() -> str | None:
    """Return None where throwaway hosts can be made, otherwise one sentence saying why not.

    Packages that can be installed are no reason.
    """
    if platform.system() != "Linux":
        return f"throwaway hosts need Linux namespaces, and this is {platform.system()}"
    if os.geteuid() != 0:
        return "throwaway hosts need root: use sudo"
    try:
        lab_group("")
    except LabError as error:
        return str(error)
    return None


def gpus_available() -> str | None:
    """Return None where hosts can be given simulated GPUs, otherwise one sentence saying why not.

    The hosts are of this machine's own distribution, and the simulated packages have the names
    that NVIDIA's have for Debian.
    """
    if platform.machine() != "x86_64":
        return f"simulated GPUs need an x86_64 machine, and this is {platform.machine()}"
    release = os_release(Path("/etc/os-release"))
    if release.get("ID") != "debian":
        name = release.get("PRETTY_NAME", "another distribution")
        return f"simulated GPUs need a Debian machine so far, and this is {name}"
    return None
