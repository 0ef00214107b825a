"""Faults to try a deploy against: a dead or slow network, a full disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyinfra_gpu_rehearsal.commands import run
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.network import ip_batch

if TYPE_CHECKING:
    from pyinfra_gpu_rehearsal.host_processes import HostProcesses

LONGEST_DELAY_MS = 5000
DISK_MIB = 16

ON_HOST = Path(__file__).parent / "on_host"
FILL, FREE = ON_HOST / "fill_disk.sh", ON_HOST / "free_disk.sh"


def change_network(host: HostProcesses, what: str, ms: int) -> None:
    """Do what LabHost.network() promises."""
    if what == "delay" and not 1 <= ms <= LONGEST_DELAY_MS:
        raise LabError(f"a delay of {ms} ms is not possible: 1 to {LONGEST_DELAY_MS} are")
    if what not in ("cut", "restore", "delay"):
        raise LabError(f"a network cannot be {what!r}: it can be cut, restore or delay")
    holder = host.bridge.only_process(comm="sleep", purpose="finding the lab's network")
    _quicken(host, holder)
    if what == "cut":
        # Off the bridge, frames to and from the host are lost without a word.
        _attach(host, holder, "nomaster")
        return
    _attach(host, holder, "master br0")
    if what == "delay":
        _delay(host, holder, ms)


def _attach(host: HostProcesses, holder: int, where: str) -> None:
    line = f"link set {host.name} {where}"
    ip_batch(holder, [line], purpose=f"changing the network of {host.name}")


def _inside(pid: int, *words: str) -> list[str]:
    return ["nsenter", f"--net=/proc/{pid}/ns/net", *words]


def _ends(host: HostProcesses, holder: int) -> list[tuple[int, str]]:
    """Return both ends of the host's veth pair: a process in the namespace, and the interface."""
    purpose = f"finding the network of {host.name}"
    own = host.network_holder.only_process(comm="sleep", purpose=purpose)
    return [(holder, host.name), (own, "eth0")]


def _delay(host: HostProcesses, holder: int, ms: int) -> None:
    """Let the kernel delay what leaves each end of the veth pair."""
    for pid, device in _ends(host, holder):
        rule = ["tc", "qdisc", "replace", "dev", device, "root", "netem"]
        words = [*rule, "delay", f"{ms}ms", "limit", "100000"]
        run(_inside(pid, *words), purpose="delaying packets, which needs the kernel's netem,")


def _quicken(host: HostProcesses, holder: int) -> None:
    """Take away any delay."""
    for pid, device in _ends(host, holder):
        words = ["tc", "qdisc", "del", "dev", device, "root"]
        run(_inside(pid, *words), purpose="", check=False)  # there may be none


def image_file(host: HostProcesses) -> Path:
    """Return where the host's full disk lies."""
    return host.folder / "full-disk.img"


def fill_disk(host: HostProcesses) -> None:
    """Do what LabHost.fill_disk() promises."""
    if host.run("mountpoint -q /dev/.full", check=False).returncode == 0:
        return
    image, purpose = image_file(host), f"filling the disk of {host.name}"
    release_disk(host)
    with image.open("wb") as content:
        content.truncate(DISK_MIB * 1024 * 1024)
    run(["mkfs.ext4", "-q", "-m", "0", image], purpose=purpose)
    device = run(["losetup", "--find", "--show", image], purpose=purpose).stdout.strip()
    try:
        number = Path(device).stat().st_rdev
        host.enter(FILL, str(number >> 8), str(number & 0xFF), purpose=purpose)
    finally:
        # While it is mounted the kernel only notes that the device is to go with the mount.
        run(["losetup", "--detach", device], purpose=purpose)


def free_disk(host: HostProcesses) -> None:
    """Do what LabHost.free_disk() promises."""
    if host.run("mountpoint -q /dev/.full", check=False).returncode == 0:
        host.enter(FREE, purpose=f"freeing the disk of {host.name}")
    release_disk(host)


def release_disk(host: HostProcesses) -> None:
    """Remove what a full disk left outside the host, which is off or has none mounted."""
    image = image_file(host)
    if not image.exists():
        return
    listed = run(["losetup", "--noheadings", "--output", "NAME", "-j", image], purpose="losetup")
    for device in listed.stdout.split():
        run(["losetup", "--detach", device], purpose="losetup", check=False)
    image.unlink(missing_ok=True)
