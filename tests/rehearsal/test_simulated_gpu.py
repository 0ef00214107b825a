"""The simulated side of a GPU host: modules come and go as on a real machine, as apt leaves them.

What a deploy shows of it anyway, dkms and the reboot among it, is not shown here again.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from running import (
    BOUND,
    GPU_HOST,
    LOADED,
    ON_HOST,
    PATIENCE_S,
    busy_gpu,
)

from pyinfra_gpu_rehearsal import Lab, LabHost

pytestmark = pytest.mark.rehearsal


@pytest.fixture
def driven(gpu_converged: Callable[[], LabHost]) -> LabHost:
    """Return the host with the driver 580.95.05 loaded, and a program that calls cuInit."""
    host = gpu_converged()
    host.put(ON_HOST / "init.c", "/root/init.c")
    host.run("gcc -o /root/init /root/init.c -lcuda")
    return host


def test_a_bare_machine_shows_its_cards_and_nouveau_has_them(gpu_lab: Lab) -> None:
    bare = gpu_lab.fresh(GPU_HOST)
    seen = bare.run("cd /sys/bus/pci/devices; cat */vendor */device; ls /boot")
    assert seen.stdout.split()[:4] == ["0x10de"] * 2 + ["0x2b85"] * 2
    assert f"vmlinuz-{os.uname().release}" in seen.stdout
    assert bare.run(BOUND).stdout.split() == ["nouveau"] * 2
    assert bare.run(LOADED, check=False).stdout == ""


@pytest.mark.night
def test_the_module_stays_while_a_card_is_used_and_goes_with_the_rest(driven: LabHost) -> None:
    assert driven.run("/root/init; nvidia-smi").stdout.startswith("0\n")
    driven.run("systemctl stop nvidia-persistenced")
    with busy_gpu(driven):
        refused = driven.run("rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia", check=False)
        assert "Module nvidia is in use" in refused.stderr
    driven.run("modprobe -r nvidia")
    assert driven.run("nvidia-smi", check=False).returncode == 9
    driven.run("modprobe nvidia; modprobe nvidia-uvm; systemctl start nvidia-persistenced")


@pytest.mark.night
def test_the_proprietary_module_does_not_drive_a_blackwell(driven: LabHost) -> None:
    swap = "install --allow-change-held-packages nvidia-kernel-dkms nvidia-kernel-open-dkms-"
    driven.run(f"apt-get -q -y --no-install-recommends {swap}", timeout=PATIENCE_S)
    driven.reboot()
    assert "UNIX x86_64 Kernel Module" in driven.run("cat /proc/driver/nvidia/version").stdout
    assert driven.run("nvidia-smi", check=False).stdout == "No devices were found\n"
    assert driven.run("/root/init").stdout.strip() == "100"
