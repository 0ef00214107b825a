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


def fill_disk(host: HostProcesses) -> None:
    """Do what LabHost.fill_disk() promises."""
    if not _is_full(host):
        host.enter(FILL, purpose=f"filling the disk of {host.name}")


def free_disk(host: HostProcesses) -> None:
    """Do what LabHost.free_disk() promises."""
    if _is_full(host):
        host.enter(FREE, purpose=f"freeing the disk of {host.name}")


def _is_full(host: HostProcesses) -> bool:
    return host.run("mountpoint -q /dev/.full", check=False).returncode == 0
