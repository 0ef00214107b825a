"""The simulated side of a GPU host: modules come and go as on a real machine, as apt leaves them.

What a deploy shows of it anyway, dkms and the reboot among it, is not shown here again.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest
from running import GPU_HOST, ON_HOST, PATIENCE_S, quietly, usual_offer

from pyinfra_gpu_rehearsal import Lab, LabError, LabHost
from pyinfra_gpu_rehearsal.nvidia.bad_repository import KINDS

pytestmark = pytest.mark.rehearsal

APT = "DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends"
DRIVER = "nvidia-driver-cuda nvidia-kernel-open-dkms"
UNLOAD = "systemctl stop nvidia-persistenced; modprobe -r nvidia_drm nvidia_uvm nvidia_modeset"


def apt(host: LabHost, words: str) -> subprocess.CompletedProcess[str]:
    return host.run(f"{APT} {words} 2>&1", check=False, timeout=PATIENCE_S)


@pytest.fixture
def driven(gpu_converged: Callable[[], LabHost]) -> LabHost:
    """Return the host with the driver 580.95.05 loaded, and a program that calls cuInit."""
    host = gpu_converged()
    host.put(ON_HOST / "init.c", "/root/init.c")
    host.run("gcc -o /root/init /root/init.c -lcuda")
    return host


def test_a_bare_machine_shows_its_cards_and_nouveau_has_them(gpu_lab: Lab) -> None:
    bare = gpu_lab.fresh(GPU_HOST)
    seen = bare.run("cd /sys/bus/pci/devices; cat */vendor */device; readlink */driver; ls /boot")
    assert seen.stdout.split()[:4] == ["0x10de"] * 2 + ["0x2b85"] * 2
    assert seen.stdout.count("drivers/nouveau") == 2
    assert f"vmlinuz-{os.uname().release}" in seen.stdout
    assert (bare.gpu.nouveau(), bare.gpu.loaded()) == (True, None)
    bare.gpu.remove_card(1)
    bare.reboot()
    assert bare.run("ls /sys/bus/pci/devices").stdout.split() == ["0000:01:00.0"]


def test_the_module_stays_while_a_card_is_used_and_the_old_one_under_a_new_driver(
    gpu_lab: Lab, driven: LabHost
) -> None:
    assert driven.run("/root/init; nvidia-smi").stdout.startswith("0\n")
    driven.run("systemctl stop nvidia-persistenced")
    with driven.gpu.busy():
        refused = driven.run("rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia", check=False)
        assert "Module nvidia is in use" in refused.stderr
    driven.run("modprobe -r nvidia")
    assert driven.run("nvidia-smi", check=False).returncode == 9
    driven.run("modprobe nvidia; modprobe nvidia-uvm; systemctl start nvidia-persistenced")

    gpu_lab.nvidia.publish("580.95.05", "580.105.08")
    driven.run("rm /etc/apt/preferences.d/*nvidia*; apt-mark unhold $(apt-mark showhold)")
    assert apt(driven, "update").returncode == 0
    done = apt(driven, "upgrade")
    assert done.returncode == 0, done.stdout
    said = driven.run("nvidia-smi", check=False)
    assert said.returncode == 18
    assert "Failed to initialize NVML: Driver/library version mismatch" in said.stdout
    assert driven.run("/root/init").stdout.strip() == "803"
    assert driven.gpu.loaded() == "580.95.05"
    driven.reboot()
    assert driven.gpu.loaded() == "580.105.08"


@pytest.mark.night
def test_a_build_that_fails_leaves_the_package_half_configured(driven: LabHost) -> None:
    driven.gpu.break_dkms()
    assert apt(driven, "install --reinstall nvidia-kernel-open-dkms").returncode == 100
    assert driven.run("dpkg -l nvidia-kernel-open-dkms").stdout.splitlines()[-1][1:2] == "F"
    driven.gpu.break_dkms(False)
    driven.run("dpkg --configure -a", timeout=PATIENCE_S)
    assert "installed" in driven.run("dkms status").stdout


@pytest.mark.night
def test_secure_boot_rejects_a_key_that_is_not_enrolled(driven: LabHost) -> None:
    driven.run(UNLOAD)
    driven.gpu.secure_boot(True)
    assert driven.run("mokutil --sb-state").stdout == "SecureBoot enabled\n"
    said = driven.run("modprobe nvidia", check=False)
    assert "Key was rejected by service" in said.stderr
    driven.gpu.secure_boot(True, enrolled=True)
    driven.run("modprobe nvidia")
    driven.gpu.secure_boot(False)


@pytest.mark.night
def test_the_proprietary_module_does_not_drive_a_blackwell(driven: LabHost) -> None:
    swap = "install --allow-change-held-packages nvidia-kernel-dkms nvidia-kernel-open-dkms-"
    assert apt(driven, swap).returncode == 0
    driven.reboot()
    assert "UNIX x86_64 Kernel Module" in driven.run("cat /proc/driver/nvidia/version").stdout
    assert driven.run("nvidia-smi", check=False).stdout == "No devices were found\n"
    assert driven.run("/root/init").stdout.strip() == "100"


# -- bad repositories


@pytest.fixture(scope="module")
def customer(gpu_lab: Lab) -> LabHost:
    """Return a fresh host that knows the repository, pinned to the branch as is advised."""
    usual_offer(gpu_lab)
    host = gpu_lab.fresh(GPU_HOST)
    url = gpu_lab.nvidia.url.format(distro="debian12", arch="x86_64")
    host.run(f"cd /tmp && curl -sfO {url}cuda-keyring_1.1-1_all.deb && dpkg -i cuda-keyring_*.deb")
    host.run(f"{APT} update")
    assert apt(host, "install nvidia-driver-pinning-580 rehearsal-desktop").returncode == 0
    return host


def updated(host: LabHost) -> subprocess.CompletedProcess[str]:
    return apt(host, "-o APT::Update::Error-Mode=any -o Acquire::Retries=0 update")


def planned(host: LabHost, words: str) -> str:
    return apt(host, f"-s install {words}").stdout


def downloaded(host: LabHost) -> str:
    host.run("apt-get clean")
    return apt(host, "--download-only install libcuda1").stdout


def unpinned(host: LabHost) -> str:
    return planned(host, "-o Dir::Etc::PreferencesParts=/none nvidia-driver-cuda=580.95.05-1")


def newer_kernel(host: LabHost) -> str:
    return f"Inst {host.gpu.kernel_update()[0]} "


# Kind -> what shows, on a host that does what is advised, that plain apt is taken in.
SYMPTOMS: dict[str, Callable[[LabHost], bool]] = {
    "transitional": lambda host: "Inst libcuda1 (595.71.05-1" in unpinned(host),
    "vanished": lambda host: "404" in downloaded(host),
    "mixed-origin": lambda host: (
        "Inst libcuda1 (580.178.04-1 pyinfra-gpu rehearsal" in planned(host, DRIVER)
    ),
    "newer-leaf": lambda host: "unmet dependencies" in planned(host, DRIVER),
    "hash-mismatch": lambda host: "Hash Sum mismatch" in downloaded(host),
    "expired-key": lambda host: "EXP" in updated(host).stdout,
    "replaced-key": lambda host: "NO_PUBKEY" in updated(host).stdout,
    "removes-desktop": lambda host: "Remv rehearsal-desktop" in planned(host, DRIVER),
    "pulls-kernel": lambda host: newer_kernel(host) in planned(host, DRIVER),
    "down": lambda host: "503" in updated(host).stdout,
}


@pytest.mark.night
@pytest.mark.parametrize("kind", KINDS)
def test_each_bad_repository_takes_plain_apt_in(gpu_lab: Lab, customer: LabHost, kind: str) -> None:
    symptom = SYMPTOMS[kind]
    assert updated(customer).returncode == 0
    assert not symptom(customer)
    gpu_lab.nvidia.go_bad(kind)
    try:
        refused = updated(customer).returncode
        assert symptom(customer)
        assert (refused != 0) == (kind in ("expired-key", "replaced-key", "down"))
    finally:
        gpu_lab.nvidia.restore()


def test_the_keyring_stays_the_same_while_the_offer_changes(gpu_lab: Lab) -> None:
    usual_offer(gpu_lab)
    before = gpu_lab.nvidia.keyring_sha256
    gpu_lab.nvidia.publish("580.105.08")
    assert gpu_lab.nvidia.keyring_sha256 == before
    gpu_lab.nvidia.go_bad("replaced-key")
    assert gpu_lab.nvidia.keyring_sha256 != before
    usual_offer(gpu_lab)
    assert gpu_lab.nvidia.keyring_sha256 == before


def test_what_is_not_there_is_refused(gpu_lab: Lab) -> None:
    with pytest.raises(LabError, match=r"no simulated driver 1\.2\.3"):
        gpu_lab.nvidia.publish("1.2.3")
    with pytest.raises(LabError, match="cannot go bad in the way 'arsenic'"):
        gpu_lab.nvidia.go_bad("arsenic")
    with pytest.raises(LabError, match="no simulated machine 'abacus'"):
        gpu_lab.up(9, machine="abacus", say=quietly)
