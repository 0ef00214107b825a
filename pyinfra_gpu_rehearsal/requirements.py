"""Whether this machine can make throwaway hosts, and what it needs for that."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from pyinfra_gpu_rehearsal.base_image import os_release
from pyinfra_gpu_rehearsal.commands import Say, run, search_path
from pyinfra_gpu_rehearsal.control_group import lab_group
from pyinfra_gpu_rehearsal.errors import LabError

# Program -> the Debian package it is in.
PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "unshare": "util-linux",
    "ssh-keygen": "openssh-client",
    "git": "git",
    "gpg": "gnupg",
}
# What a host's boot does, in namespaces that are gone at once.
TRY = (
    "unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup", "--time", "--fork",
    "--mount-proc", "sh",
)  # fmt: skip
TRY_MOUNTS = Path(__file__).parent / "on_host/try_mounts.sh"


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


def _install_line(packages: list[str]) -> str:
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get install -y --no-install-recommends {' '.join(packages)}"


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
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise LabError(f"{whose} need some packages: run `{_install_line(packages)}`")
    say(f"installing the Debian packages {', '.join(packages)} ...")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    patient = ["-o", "DPkg::Lock::Timeout=120"]
    command = ["apt-get", *patient, "install", "-y", "--no-install-recommends", *packages]
    if run(command, purpose="", env=env, timeout=900, check=False).returncode != 0:
        run(["apt-get", "update"], purpose="apt-get update", env=env, timeout=300)
        run(command, purpose=_install_line(packages), env=env, timeout=900)


def available() -> str | None:
    """Return None where throwaway hosts can be made, otherwise one sentence saying why not.

    Packages that root could install do not count as a reason.
    """
    if platform.system() != "Linux":
        return f"throwaway hosts need Linux namespaces, and this is {platform.system()}"
    if os.geteuid() != 0:
        return "throwaway hosts need root: use sudo"
    missing = missing_packages()
    if missing and shutil.which("apt-get") is None:
        return f"throwaway hosts need some packages: run `{_install_line(missing)}`"
    try:
        lab_group("")
        run([*TRY, TRY_MOUNTS], purpose="trying namespaces")
    except LabError as error:
        return f"throwaway hosts cannot be made here ({error})"
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
