"""Every way in which a GPU host drifts that the tests inject: one shell command each.

Each is run as root on a host that is as declared. `K` and `V` below are set for the commands: the
running kernel and the version of the installed driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LIB = "/usr/lib/x86_64-linux-gnu"
PREFIX = "/opt/pyinfra-gpu"
PRELUDE = """
set -e
export DEBIAN_FRONTEND=noninteractive
K=$(uname -r) V=$(dpkg-query -W -f '${Version}' libcuda1)
quiet() { "$@" >/tmp/inject.log 2>&1 || { cat /tmp/inject.log; exit 1; }; }
force() { quiet apt-get install -y --allow-change-held-packages --allow-downgrades "$@"; }
owner() { runuser -u ubuntu -- sh -c "$1"; }
"""
"""`force` installs packages against pins and holds; `owner` runs a line as the owner does."""


@dataclass(frozen=True, kw_only=True)
class Drift:
    """One drift, or one thing that happened to a host.

    + inject: shell commands, after PRELUDE
    + ids: the findings by which it must be seen; () where the host is as declared all the same
    + effect: what `check` must say of the first of them; "" = it does not matter
    + publish: driver versions that the repository offers from then on
    + newer_kernel: the distribution offers a newer kernel from then on
    + refused: the run after it stops this host, or a stage of it, with a sentence
    + holds: shell that must succeed once a run has repaired it
    + undo: shell by which a person takes back what no run repairs
    + reboots: how often the host may reboot in the repair
    """

    inject: str
    ids: tuple[str, ...] = ()
    effect: Literal["repair", "restart", "report", ""] = "repair"
    publish: tuple[str, ...] = ()
    newer_kernel: bool = False
    refused: bool = False
    holds: str = "true"
    undo: str = ""
    reboots: int = 0


R580 = ("580.82.07", "580.95.05", "580.105.08")
"""What the repository offers of the branch from the first of these drifts on."""

COMPANION = """
    quiet apt-get update
    cd /tmp; quiet apt-get download nvidia-modprobe={version}
    quiet dpkg --force-depends -i nvidia-modprobe_*.deb; rm nvidia-modprobe_*.deb
"""

DRIFTS: dict[str, Drift] = {
    # First, while the host still has the older driver.
    "a companion package went ahead": Drift(
        inject=COMPANION.format(version="580.105.08-1"),
        ids=("driver.version-differs",),
        publish=R580,
    ),
    "the driver was upgraded under the loaded module": Drift(
        inject="""
            quiet apt-get update
            force $(dpkg-query -W -f '${Package} ${Version}\\n' | awk -v v="$V" \
              '$2 == v {print $1 "=580.105.08-1"}')
        """,
        ids=("driver.module-differs",),
        publish=R580,
        effect="restart",
    ),
    "the module is built for no kernel": Drift(
        inject="find /lib/modules -name 'nvidia*.ko*' -delete; depmod $K",
        ids=("driver.module-not-built",),
    ),
    # A kernel update without its headers: DKMS builds nothing, says nothing, exits with 0.
    "the module is not built for the newest kernel": Drift(
        inject="quiet apt-get update; quiet apt-get install -y linux-image-amd64",
        ids=("driver.module-not-built",),
        newer_kernel=True,
    ),
    "the proprietary flavour is installed": Drift(
        inject="force nvidia-kernel-dkms=$V nvidia-kernel-open-dkms-", ids=("driver.not-installed",)
    ),
    "the pins are removed": Drift(
        inject="rm /etc/apt/preferences.d/00pyinfra-gpu-nvidia", ids=("driver.pins-differ",)
    ),
    "a hold is removed": Drift(
        inject="quiet apt-mark unhold libcuda1", ids=("driver.hold-differs",)
    ),
    "the repository's key is replaced": Drift(
        inject="cp /usr/share/keyrings/debian-archive-keyring.gpg"
        " /usr/share/keyrings/pyinfra-gpu-nvidia.gpg",
        ids=("driver.keyring-replaced",),
    ),
    "the source list points at another release": Drift(
        inject="sed -i s/debian12/debian11/ /etc/apt/sources.list.d/pyinfra-gpu-nvidia.list",
        ids=("driver.source-differs",),
    ),
    "the blacklist is edited": Drift(
        inject="sed -i /nouveau/d /etc/modprobe.d/pyinfra-gpu-nvidia.conf",
        ids=("driver.blacklist-differs",),
    ),
    "the initramfs is older than the blacklist": Drift(
        inject="touch -d '2020-01-01' /boot/initrd.img-*", ids=("driver.initramfs-stale",)
    ),
    "nouveau is back": Drift(
        inject="""
            rm -f /etc/modprobe.d/*nvidia* /usr/lib/modprobe.d/*nvidia*
            quiet update-initramfs -u -k all
        """,
        ids=("driver.module-differs",),
        effect="restart",
        reboots=1,
    ),
    "the module is not loaded": Drift(
        inject="""
            systemctl stop nvidia-persistenced
            modprobe -r nvidia_drm nvidia_modeset nvidia_uvm nvidia
        """,
        ids=("driver.module-differs",),
        effect="restart",
    ),
    "persistenced is off": Drift(
        inject="quiet systemctl disable --now nvidia-persistenced",
        ids=("driver.persistenced-differs",),
    ),
    "persistenced is masked": Drift(
        inject="quiet systemctl mask --now nvidia-persistenced",
        ids=("driver.persistenced-differs",),
        effect="report",
        undo="quiet systemctl unmask nvidia-persistenced; systemctl start nvidia-persistenced",
    ),
    "a driver package is half installed": Drift(
        inject="""
            cd /tmp; quiet apt-get download nvidia-smi=$V
            quiet dpkg --unpack nvidia-smi_*.deb; rm nvidia-smi_*.deb
        """,
        ids=("driver.files-damaged",),
    ),
    "the kernel headers are gone": Drift(
        inject="quiet dpkg --force-depends --purge linux-headers-$K",
        ids=("driver.headers-missing",),
    ),
    "a runfile driver was installed": Drift(
        inject="""
            printf '#!/bin/sh\\n' > /usr/bin/nvidia-uninstall
            chmod 0755 /usr/bin/nvidia-uninstall
        """,
        ids=("preflight.other-driver",),
        effect="report",
        undo="rm /usr/bin/nvidia-uninstall",
        refused=True,
    ),
    "libcuda.so is missing": Drift(inject=f"rm {LIB}/libcuda.so", ids=("libcuda.link-differs",)),
    "a power cut left libcuda without contents": Drift(
        inject=f": > {LIB}/libcuda.so.${{V%-*}}", ids=("libcuda.link-differs",)
    ),
    "another libcuda.so.1 comes first": Drift(
        inject=f"""
            mkdir -p /opt/foreign; cp {LIB}/libcuda.so.1 /opt/foreign/libcuda.so.1
            echo /opt/foreign > /etc/ld.so.conf.d/000-foreign.conf; ldconfig
        """,
        ids=("libcuda.another",),
        effect="report",
        undo="rm -r /etc/ld.so.conf.d/000-foreign.conf /opt/foreign; ldconfig",
        refused=True,
    ),
    "somebody's newer libcuda lies beside the driver's": Drift(
        inject=f"cp {LIB}/libcuda.so.${{V%-*}} {LIB}/libcuda.so.999.01; ldconfig",
        ids=("driver.files-damaged",),
    ),
    "the linker's cache is stale": Drift(
        inject=f"""
            mkdir /tmp/aside; mv {LIB}/libcuda.so* /tmp/aside; ldconfig; mv /tmp/aside/* {LIB}
            rmdir /tmp/aside
        """,
        ids=("libcuda.cache-stale",),
    ),
    "the stubs are on the linker's path": Drift(
        inject="echo /usr/local/cuda-13.0/lib64/stubs > /etc/ld.so.conf.d/999-stubs.conf; ldconfig",
        ids=("libcuda.another",),
        effect="report",
        undo="rm /etc/ld.so.conf.d/999-stubs.conf; ldconfig",
        refused=True,  # programs load the stub: nothing can work on the GPU
    ),
    "/usr/local/cuda moved to 13.1": Drift(
        inject="""
            force --reinstall cuda-toolkit-13-1
            quiet update-alternatives --set cuda /usr/local/cuda-13.1
        """,
        ids=("cuda.link-differs",),
    ),
    "/usr/local/cuda was made by hand": Drift(
        inject="quiet update-alternatives --remove-all cuda;"
        " ln -sfn /usr/local/cuda-13.0/ /usr/local/cuda",
        ids=("cuda.link-differs",),
    ),
    "another nvcc comes first on PATH": Drift(
        inject="printf '#!/bin/sh\\n' > /usr/local/bin/nvcc; chmod 0755 /usr/local/bin/nvcc",
        ids=("cuda.shell-path",),
        effect="report",
        undo="rm /usr/local/bin/nvcc",
    ),
    "the toolkit is half removed": Drift(
        inject="rm -r /usr/local/cuda-13.0/bin/ptxas", ids=("cuda.toolkit-differs",)
    ),
    "the compiler is out of range": Drift(
        inject="""
            mv /usr/bin/gcc /usr/bin/gcc.real
            printf '#!/bin/sh\\necho 16.1.0\\n' > /usr/bin/gcc; chmod 0755 /usr/bin/gcc
        """,
        ids=("preflight.incompatible",),
        effect="report",
        undo="mv /usr/bin/gcc.real /usr/bin/gcc",
        refused=True,
    ),
    "the proof of the toolkit is gone": Drift(
        inject=f"rm {PREFIX}/proofs/cuda.json", ids=("cuda.unproven",)
    ),
    "the proof of libcuda is of another driver": Drift(
        inject=f'sed -i \'s/"gcc": "/"gcc": "z/\' {PREFIX}/proofs/libcuda.json',
        ids=("libcuda.unproven",),
    ),
    "torch was swapped, as `uv sync` in a project does": Drift(
        inject=f"sed -i \"s/'2.13.0+cpu'/'2.12.0'/\""
        f" {PREFIX}/venv/lib/python3*/site-packages/torch/version.py",
        ids=("pytorch.version-differs",),
    ),
    # Comes last of the driver's: going back to the declared branch is a downgrade.
    "the branch moved": Drift(
        inject="""
            rm -f /etc/apt/preferences.d/*nvidia*
            quiet apt-get update
            force $(dpkg-query -W -f '${Package} ${Version}\\n' | awk -v v="$V" \
              '$2 == v {print $1 "=595.71.05-1"}')
        """,
        ids=("driver.version-differs",),
        publish=(*R580, "595.71.05"),
    ),
}
