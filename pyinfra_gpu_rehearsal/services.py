"""What runs in a lab beside its hosts: their network, and the file server in it."""

from __future__ import annotations

import sys
from pathlib import Path

from pyinfra_gpu_rehearsal import network, server
from pyinfra_gpu_rehearsal.control_group import Group, wait_until_ready


def are_there(lab: Group, subnet: network.Subnet) -> bool:
    """Tell whether both run, and this machine reaches the network."""
    groups = [lab.sub(name) for name in ("bridge", "files")]
    return all(group.populated() for group in groups) and network.link_exists(subnet.link)


def start(lab: Group, subnet: network.Subnet, www: Path, log: Path) -> None:
    """Make the network, and have the folder WWW served in it.

    + log: what both print, begun anew

    Raises LabError where one of them does not start.
    """
    bridge, files = lab.sub("bridge"), lab.sub("files")
    log.write_text("")
    bridge.start(network.HOLDER, log=log, purpose="making a network")
    holder = bridge.only_process(comm="sleep", purpose="making a network")
    network.set_up_lab(subnet, holder)
    inside = ["nsenter", f"--net=/proc/{holder}/ns/net"]
    program: list[str | Path] = [sys.executable, "-I", Path(server.__file__), www]
    words = [*inside, *program, subnet.address(network.SERVICES), str(server.PORT)]
    files.start(words, log=log, purpose="starting the file server")
    wait_until_ready(files, log, purpose="starting the file server")


def remove(lab_id: str, group: Path) -> None:
    """Remove all of lab LAB_ID, hosts too, but its files; nothing of it need be there.

    + group: the control group in which it runs
    """
    Group(group).remove()
    network.remove_link(network.Subnet(lab_id=lab_id, number=0).link)
