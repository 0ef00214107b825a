"""The simulated GPU behaves as the real machine does where a deploy looks at it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator

import pytest
from running import ON_HOST, PATIENCE_S, quietly

from pyinfra_gpu_rehearsal import Lab, LabError, LabHost, available, inventory
from pyinfra_gpu_rehearsal.nvidia.archive import DKMS
from pyinfra_gpu_rehearsal.nvidia.bad_repository import KINDS
from tests.night import by_night

pytestmark = pytest.mark.rehearsal

APT = "DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends"
BLACKLIST = "printf 'blacklist nouveau\\n' >/etc/modprobe.d/no-nouveau.conf; update-initramfs -u"
DRIVER = "nvidia-driver-cuda nvidia-kernel-open-dkms"
QUERY = "nvidia-smi --query-gpu=index,name,driver_version,memory.total --format=csv,noheader"
CU_INIT = "gcc -o /root/init /root/init.c -lcuda && /root/init"
KERNEL = "/usr/local/cuda-13.0/bin/nvcc -arch=sm_120 -o /tmp/add /tmp/add.cu && strings -a /tmp/add"


def add_repository(lab: Lab, host: LabHost) -> None:
    url = lab.nvidia.url.format(distro="debian12", arch="x86_64")
    host.run(f"cd /tmp && curl -sfO {url}cuda-keyring_1.1-1_all.deb && dpkg -i cuda-keyring_*.deb")
    host.run(f"{APT} update")


def apt(host: LabHost, words: str) -> subprocess.CompletedProcess[str]:
    return host.run(f"{APT} {words} 2>&1", check=False, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def gpu_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Return a lab with one host, gpu1, with two RTX 5090; skip where none can be made."""
    why_not = available()
    if why_not is not None and "CI" in os.environ:
        pytest.fail(f"in CI these tests must run, and {why_not}")
    if why_not is not None:
        pytest.skip(why_not)
    made = Lab(tmp_path_factory.mktemp("gpu") / ".rehearsal")
    try:
        made.up(1, machine="2x RTX 5090", say=quietly)
        yield made
    finally:
        made.down(say=quietly)


@pytest.fixture(scope="module")
def bare(gpu_lab: Lab) -> LabHost:
    return gpu_lab.host("gpu1")


@pytest.fixture(scope="module")
def driven(gpu_lab: Lab, bare: LabHost) -> LabHost:
    """Return the host with the driver 580.95.05 installed and loaded."""
    add_repository(gpu_lab, bare)
    done = apt(bare, f"install linux-headers-$(uname -r) libc6-dev {DRIVER}")
    assert done.returncode == 0, done.stdout
    assert bare.gpu.nouveau()  # nothing changes until the machine is told
    bare.run(BLACKLIST)
    bare.reboot()
    return bare


def test_a_bare_machine_shows_its_cards_and_nouveau_has_them(bare: LabHost) -> None:
    seen = bare.run(
        "cd /sys/bus/pci/devices; cat */vendor */device; readlink */driver; ls /boot;"
        " modinfo nvidia",
        check=False,
    )
    assert seen.stdout.split()[:4] == ["0x10de"] * 2 + ["0x2b85"] * 2
    assert seen.stdout.count("drivers/nouveau") == 2
    assert f"vmlinuz-{os.uname().release}" in seen.stdout
    assert "Module nvidia not found" in seen.stderr
    assert bare.gpu.nouveau()
    assert bare.gpu.loaded() is None


def test_the_inventory_says_what_a_deploy_needs(gpu_lab: Lab) -> None:
    ((_, data),) = inventory(gpu_lab.directory)
    assert (data["gpu_model"], data["gpu_count"]) == ("RTX 5090", 2)
    assert len(str(data["driver_key_fingerprint"])) == 40
    assert len(str(data["driver_keyring_sha256"])) == 64
    assert str(data["driver_repository_url"]).endswith("/nvidia/{distro}/{arch}/")


def test_the_driver_is_built_by_dkms_and_loaded_after_a_reboot(driven: LabHost) -> None:
    release = os.uname().release
    assert f"nvidia/580.95.05, {release}, x86_64: installed" in driven.run("dkms status").stdout
    # Which apt takes for its epoch, where nothing keeps it from it.
    assert driven.run("dpkg-query -W -f '${Version}' dkms").stdout == DKMS
    assert not driven.gpu.nouveau()
    assert driven.gpu.loaded() == "580.95.05"
    line = driven.run("head -n 1 /proc/driver/nvidia/version").stdout
    assert line.startswith(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"
    )
    rows = driven.run(QUERY).stdout.splitlines()
    assert rows == [f"{i}, NVIDIA GeForce RTX 5090, 580.95.05, 32607 MiB" for i in (0, 1)]
    assert "rehearsal" in driven.run("nvidia-smi").stdout
    assert driven.run("systemctl is-active nvidia-persistenced").stdout.strip() == "active"
    driven.put(ON_HOST / "init.c", "/root/init.c")
    assert driven.run(CU_INIT).stdout.strip() == "0"


def test_a_card_in_use_keeps_the_module(driven: LabHost) -> None:
    driven.run("systemctl stop nvidia-persistenced")
    with driven.gpu.busy():
        apps = driven.run("nvidia-smi --query-compute-apps=pid,name --format=csv,noheader").stdout
        assert "sleep" in apps
        refused = driven.run("rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia", check=False)
        assert "Module nvidia is in use" in refused.stderr
        assert driven.gpu.loaded() == "580.95.05"
    driven.run("modprobe -r nvidia")
    assert driven.gpu.loaded() is None
    assert driven.run("nvidia-smi", check=False).returncode == 9
    driven.run("modprobe nvidia; modprobe nvidia-uvm; systemctl start nvidia-persistenced")
    assert driven.gpu.loaded() == "580.95.05"


def test_a_new_driver_under_a_loaded_one_stops_everything_new(
    gpu_lab: Lab, driven: LabHost
) -> None:
    gpu_lab.nvidia.publish("580.95.05", "580.105.08")
    assert apt(driven, "update").returncode == 0
    assert apt(driven, "upgrade").returncode == 0
    said = driven.run("nvidia-smi", check=False)
    assert said.returncode == 18
    assert "Failed to initialize NVML: Driver/library version mismatch" in said.stdout
    assert driven.run("/root/init").stdout.strip() == "803"
    assert driven.run("modinfo -F version nvidia").stdout.strip() == "580.105.08"
    state = driven.run("systemctl is-active nvidia-persistenced", check=False).stdout.strip()
    assert state == "inactive"  # stopped by its own package, and nothing started it again
    assert driven.run("ls /run/reboot-required", check=False).returncode != 0
    driven.reboot()
    assert driven.gpu.loaded() == "580.105.08"
    assert driven.run("/root/init").stdout.strip() == "0"


def test_nvcc_is_the_real_one(driven: LabHost) -> None:
    done = apt(driven, "install g++ cuda-toolkit-13-0")
    assert done.returncode == 0, done.stdout
    assert "release 13.0, V13.0.88" in driven.run("/usr/local/cuda/bin/nvcc --version").stdout
    driven.put(ON_HOST / "add.cu", "/tmp/add.cu")
    assert "sm_120" in driven.run(KERNEL).stdout
    assert apt(driven, "install cuda-toolkit-13-1").returncode == 0
    assert driven.run("readlink -f /usr/local/cuda").stdout.strip() == "/usr/local/cuda-13.1"


def test_a_newer_kernel_gets_its_modules_from_dkms(driven: LabHost) -> None:
    image, headers = driven.gpu.kernel_update()
    assert apt(driven, f"install {image} {headers}").returncode == 0
    newer = image.removeprefix("linux-image-")
    assert f"{newer}, x86_64: installed" in driven.run("dkms status").stdout
    assert driven.run(f"modinfo -k {newer} -F vermagic nvidia").stdout.startswith(newer)


def test_a_build_that_fails_leaves_the_package_half_configured(driven: LabHost) -> None:
    driven.gpu.break_dkms()
    done = apt(driven, "install --reinstall nvidia-kernel-open-dkms")
    assert done.returncode == 100, done.stdout
    assert driven.run("dpkg -l nvidia-kernel-open-dkms").stdout.splitlines()[-1][:2] == "iF"
    assert "installed" not in driven.run("dkms status").stdout
    driven.gpu.break_dkms(False)
    again = apt(driven, "install --reinstall nvidia-kernel-open-dkms")
    assert "Internal Error, No file name for" in again.stdout  # apt 2.6, of what it has unpacked
    driven.run("dpkg --configure -a", timeout=PATIENCE_S)
    assert driven.run("dpkg -l nvidia-kernel-open-dkms").stdout.splitlines()[-1][:2] == "ii"
    assert "installed" in driven.run("dkms status").stdout


@pytest.mark.night
def test_secure_boot_rejects_a_key_that_is_not_enrolled(driven: LabHost) -> None:
    driven.run("systemctl stop nvidia-persistenced; modprobe -r nvidia_drm nvidia_uvm")
    driven.gpu.secure_boot(True)
    assert driven.run("mokutil --sb-state").stdout == "SecureBoot enabled\n"
    said = driven.run("modprobe nvidia", check=False)
    assert "Key was rejected by service" in said.stderr
    driven.gpu.secure_boot(True, enrolled=True)
    driven.run("modprobe nvidia")
    driven.gpu.secure_boot(False)


@pytest.mark.night
def test_the_proprietary_module_does_not_drive_a_blackwell(driven: LabHost) -> None:
    assert apt(driven, "install nvidia-kernel-dkms nvidia-kernel-open-dkms-").returncode == 0
    driven.reboot()
    assert driven.run("modinfo -F license nvidia").stdout.strip() == "NVIDIA"
    assert "UNIX x86_64 Kernel Module" in driven.run("cat /proc/driver/nvidia/version").stdout
    said = driven.run("nvidia-smi", check=False)
    assert said.stdout == "No devices were found\n"
    assert driven.run("/root/init").stdout.strip() == "100"


def test_a_fresh_host_is_bare_again_and_a_card_can_fall_off(gpu_lab: Lab, driven: LabHost) -> None:
    gpu_lab.nvidia.publish()
    driven.gpu.remove_card(1)
    driven.reboot()
    assert driven.run("ls /sys/bus/pci/devices").stdout.split() == ["0000:01:00.0"]
    gpu_lab.fresh("gpu1")
    assert len(driven.run("ls /sys/bus/pci/devices").stdout.split()) == 2
    assert driven.gpu.nouveau()


@pytest.fixture(scope="module")
def customer(gpu_lab: Lab) -> LabHost:
    """Return a fresh host that knows the repository, pinned to the branch as is advised."""
    host = gpu_lab.fresh("gpu1")
    add_repository(gpu_lab, host)
    assert apt(host, "install nvidia-driver-pinning-580 rehearsal-desktop").returncode == 0
    return host


def updated(host: LabHost) -> subprocess.CompletedProcess[str]:
    return apt(host, "-o APT::Update::Error-Mode=any -o Acquire::Retries=0 update")


def planned(host: LabHost, words: str) -> str:
    return apt(host, f"-s install {words}").stdout


def downloaded(host: LabHost) -> str:
    host.run("apt-get clean")
    return apt(host, "--download-only install libcuda1").stdout


def unpinned(host: LabHost, words: str) -> str:
    return planned(host, f"-o Dir::Etc::PreferencesParts=/none {words}")


def newer_kernel(host: LabHost) -> str:
    return host.gpu.kernel_update()[0]


# Kind -> what shows, on a host that does what is advised, that plain apt is taken in.
SYMPTOMS: dict[str, Callable[[LabHost], bool]] = {
    "transitional": lambda host: (
        "Inst libcuda1 (595.71.05-1" in unpinned(host, "nvidia-driver-cuda=580.95.05-1")
    ),
    "vanished": lambda host: "404" in downloaded(host),
    "mixed-origin": lambda host: (
        "Inst libcuda1 (580.178.04-1 pyinfra-gpu rehearsal" in planned(host, DRIVER)
    ),
    "no-pins": lambda host: (
        "Unable to locate package nvidia-driver-pinning-595"
        in planned(host, "nvidia-driver-pinning-595")
    ),
    "newer-leaf": lambda host: "unmet dependencies" in planned(host, DRIVER),
    "hash-mismatch": lambda host: "Hash Sum mismatch" in downloaded(host),
    "expired-key": lambda host: "EXP" in updated(host).stdout,
    "replaced-key": lambda host: "NO_PUBKEY" in updated(host).stdout,
    "removes-desktop": lambda host: "Remv rehearsal-desktop" in planned(host, DRIVER),
    "pulls-kernel": lambda host: f"Inst {newer_kernel(host)}" in planned(host, DRIVER),
    "down": lambda host: "503" in updated(host).stdout,
}


@pytest.mark.parametrize("kind", by_night(KINDS, ("expired-key", "pulls-kernel")))
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


def test_the_distribution_can_move_on_to_a_newer_kernel(gpu_lab: Lab, customer: LabHost) -> None:
    wanted = f"Inst {newer_kernel(customer)} "
    assert updated(customer).returncode == 0
    assert wanted not in planned(customer, "linux-image-amd64")
    gpu_lab.nvidia.offer_newer_kernel()
    assert updated(customer).returncode == 0
    assert wanted in planned(customer, "linux-image-amd64")
    gpu_lab.nvidia.offer_newer_kernel(False)


def test_the_keyring_stays_the_same_while_the_offer_changes(gpu_lab: Lab) -> None:
    before = gpu_lab.nvidia.keyring_sha256
    gpu_lab.nvidia.publish("580.105.08")
    assert gpu_lab.nvidia.keyring_sha256 == before
    gpu_lab.nvidia.publish()
    gpu_lab.nvidia.go_bad("replaced-key")
    assert gpu_lab.nvidia.keyring_sha256 != before
    gpu_lab.nvidia.restore()
    assert gpu_lab.nvidia.keyring_sha256 == before


def test_an_unknown_driver_or_kind_is_refused(gpu_lab: Lab) -> None:
    with pytest.raises(LabError, match=r"no simulated driver 1\.2\.3"):
        gpu_lab.nvidia.publish("1.2.3")
    with pytest.raises(LabError, match="cannot go bad in the way 'arsenic'"):
        gpu_lab.nvidia.go_bad("arsenic")


def test_other_machines_stand_beside_it(gpu_lab: Lab) -> None:
    gpu_lab.up(2, machine="8x H200", say=quietly)
    gpu_lab.up(3, machine=None, say=quietly)
    second, third = gpu_lab.host("gpu2"), gpu_lab.host("gpu3")
    assert second.run("cat /sys/bus/pci/devices/*/device").stdout.split() == ["0x2335"] * 8
    assert third.machine is None
    said: list[str] = []
    gpu_lab.up(3, machine="2x B200", say=said.append)
    assert any("no host is new, so none became '2x B200'" in line for line in said)
    assert third.run("ls /usr/lib/modules", check=False).returncode != 0
    with pytest.raises(LabError, match="gpu3 has no simulated GPU"):
        third.gpu.loaded()
    with pytest.raises(LabError, match="no simulated machine 'abacus'"):
        gpu_lab.up(4, machine="abacus", say=quietly)
