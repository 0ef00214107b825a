"""Whether this machine can make throwaway hosts, and what it needs for that."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import run, search_path
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.placing import is_root, lab_place

# Program -> the Debian package it is in.
PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "ssh-keygen": "openssh-client",
    "ssh": "openssh-client",
    "git": "git",
    "gpg": "gnupg",
}
# The same, for simulated GPUs: their programs are compiled.
GPU_PROGRAMS = {"gcc": "gcc"}
C_HEADERS = Path("/usr/include/stdio.h")  # in libc6-dev, which gcc only recommends
EVERY_NAMESPACE = (
    "--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup", "--time", "--fork", "--mount-proc",
)  # fmt: skip
TRY_MOUNTS = Path(__file__).parent / "on_host/try_mounts.sh"


def missing_packages(*, gpu: bool = False) -> list[str]:
    """Return the Debian packages that are needed and not there.

    + gpu: also what simulated GPUs need.
    """
    search = search_path(os.environ.get("PATH", os.defpath))
    missing = {pkg for name, pkg in PROGRAMS.items() if shutil.which(name, path=search) is None}
    if gpu:
        missing |= {pkg for name, pkg in GPU_PROGRAMS.items() if shutil.which(name) is None}
        missing |= set() if C_HEADERS.exists() else {"libc6-dev"}
    return sorted(missing)


def _install_line(packages: list[str]) -> str:
    sudo = "" if is_root() else "sudo "
    return f"{sudo}apt-get install -y --no-install-recommends {' '.join(packages)}"


def ensure_packages(say: Callable[[str], None], *, gpu: bool = False) -> None:
    """Install, as root with apt, the Debian packages that are needed and missing.

    + gpu: also what simulated GPUs need.

    Raises LabError naming them in one line where they cannot be installed.
    """
    install_packages(missing_packages(gpu=gpu), say, whose="throwaway hosts")


def install_packages(packages: list[str], say: Callable[[str], None], *, whose: str) -> None:
    """Install Debian packages, as root with apt.

    + whose: who needs them, e.g. "the tests"

    Raises LabError naming them in one line where they cannot be installed.
    """
    if not packages:
        return
    if not is_root() or shutil.which("apt-get") is None:
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
    if sys.platform != "linux":
        return f"throwaway hosts need Linux namespaces, and this is {platform.system()}"
    if not is_root():
        return "throwaway hosts need root: use sudo"
    missing = missing_packages()
    if missing and shutil.which("apt-get") is None:
        return f"throwaway hosts need some packages: run `{_install_line(missing)}`"
    try:
        run(["unshare", *EVERY_NAMESPACE, "sh", TRY_MOUNTS], purpose="trying namespaces")
        lab_place("probe")
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
    release = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    if release.get("ID") != "debian":
        name = release.get("PRETTY_NAME", "another distribution")
        return f"simulated GPUs need a Debian machine so far, and this is {name}"
    missing = missing_packages(gpu=True)
    if missing and not is_root():
        return f"simulated GPUs need some packages: run `{_install_line(missing)}`"
    return None
