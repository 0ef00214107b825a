"""The lab's network: one bridge in a namespace of its own, one namespace for each host.

10.77.N.0/24: .1 is the lab's file server, .11, .12 ... the hosts, .254 this machine. There is no
way out: no route, no address translation, no forwarding, no change to this machine's firewall.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu_rehearsal import server
from pyinfra_gpu_rehearsal.commands import last_line, run, until
from pyinfra_gpu_rehearsal.control_group import Group
from pyinfra_gpu_rehearsal.errors import LabError

FIRST_HOST = 11
MOST_HOSTS = 200
HOLDER = ("unshare", "--net", "sleep", "infinity")  # the process that holds a network namespace
SERVICES, MACHINE = 1, 254  # the last byte of their addresses


def choose_subnet(occupied: Iterable[str]) -> int:
    """Return the first N whose 10.77.N.0/24 is free.

    + occupied: networks and addresses in use on this machine ("10.0.0.0/8", "192.0.2.2").

    Raises LabError where none is free.
    """
    networks = [ipaddress.ip_network(text, strict=False) for text in occupied]
    for number in range(1, 255):
        candidate = ipaddress.ip_network(f"10.77.{number}.0/24")
        if not any(candidate.overlaps(other) for other in networks):
            return number
    raise LabError("none of the networks 10.77.1.0/24 to 10.77.254.0/24 is free on this machine")


def networks_of_machine() -> list[str]:
    """Return the IPv4 networks this machine has addresses in or routes to."""
    command = ["ip", "-4", "route", "show", "table", "all"]  # its own addresses are among them
    said = run(command, purpose="reading the machine's networks").stdout
    return re.findall(r"(?m)^(?:\w+ )?(\d+\.\d+\.\d+\.\d+(?:/\d+)?)\b", said)


@dataclass(frozen=True, kw_only=True, slots=True)
class Subnet:
    """Names and addresses of one lab."""

    lab_id: str
    number: int

    def address(self, last: int) -> str:
        """Return the address that ends in LAST."""
        return f"10.77.{self.number}.{last}"

    def mac(self, last: int) -> str:
        """Return the hardware address that belongs to address(LAST).

        It is fixed because a machine made again under the same address would otherwise not be
        reachable until its neighbours' caches expire.
        """
        return f"02:4d:{self.number:02x}:00:00:{last:02x}"

    def know(self, device: str, *lasts: int) -> list[str]:
        """Return commands that make hardware addresses known for good.

        So a cut network is silent, as a dead line is: without them the sender would be told "no
        route to host" as soon as nobody answers its question for the address.
        """
        return [
            f"neigh replace {self.address(n)} lladdr {self.mac(n)} dev {device} nud permanent"
            for n in lasts
        ]

    @property
    def link(self) -> str:
        """The interface through which this machine reaches the lab."""
        return f"pgpu-{self.lab_id}"


def inside(holder: int) -> list[str]:
    """Return the words before a command that is to run in a process's network namespace."""
    return ["nsenter", f"--net=/proc/{holder}/ns/net"]


def ip_batch(holder: int | None, *lines: str, purpose: str) -> None:
    """Run the `ip` commands LINES in the network of process HOLDER (None: the machine's)."""
    enter = [] if holder is None else inside(holder)
    run([*enter, "ip", "-batch", "-"], stdin="\n".join(lines) + "\n", purpose=purpose)


def link_exists(name: str) -> bool:
    """Tell whether this machine has the interface NAME."""
    return Path("/sys/class/net", name).exists()


def is_on(lab: Group, subnet: Subnet) -> bool:
    """Tell whether network and file server run, and this machine reaches them."""
    groups = [lab.sub(name) for name in ("bridge", "files")]
    return all(group.populated() for group in groups) and link_exists(subnet.link)


def start(lab: Group, subnet: Subnet, www: Path, log: Path) -> None:
    """Make the bridge and this machine's link to it, and have the folder WWW served there.

    + log: what network and server print, begun anew

    Raises LabError where one of them does not start.
    """
    log.write_text("")
    purpose, services, machine = "making the lab's network", SERVICES, MACHINE
    lab.sub("bridge").start(HOLDER, log=log, purpose=purpose)
    holder = lab.sub("bridge").only_process(comm="sleep", purpose=purpose)
    ip_batch(
        holder,
        "link set lo up",
        "link add br0 type bridge stp_state 0 forward_delay 0",
        f"link set br0 address {subnet.mac(services)} up",
        f"addr add {subnet.address(services)}/24 dev br0",
        purpose=purpose,
    )
    ip_batch(
        None,
        f"link add {subnet.link} address {subnet.mac(machine)} type veth"
        f" peer name machine netns {holder}",
        f"addr add {subnet.address(machine)}/24 dev {subnet.link}",
        f"link set {subnet.link} up",
        *subnet.know(subnet.link, services),
        purpose=purpose,
    )
    ip_batch(
        holder, "link set machine master br0 up", *subnet.know("br0", machine), purpose=purpose
    )
    purpose, files = "starting the file server", lab.sub("files")
    program: list[str | Path] = [sys.executable, "-I", Path(server.__file__), www]
    words = [*inside(holder), *program, subnet.address(services), str(server.PORT)]
    files.start(words, log=log, purpose=purpose)
    until(lambda: "ready" in log.read_text() or not files.populated(), 10)
    if "ready" not in (said := log.read_text(errors="replace")).splitlines():
        raise LabError(f"{purpose} failed: {last_line(said)}")


def connect(lab: Group, subnet: Subnet, name: str, last: int, own: Group, log: Path) -> None:
    """Make the network of the host NAME, whose address ends in LAST, and connect it to the bridge.

    + own: the control group of what holds the network; log: what that prints
    """
    purpose = f"connecting {name}"
    own.start(HOLDER, log=log, purpose=purpose)
    host = own.only_process(comm="sleep", purpose=purpose)
    holder = lab.sub("bridge").only_process(comm="sleep", purpose=purpose)
    ip_batch(
        holder,
        f"link add {name} type veth peer name eth0 address {subnet.mac(last)} netns {host}",
        f"link set {name} master br0 up",
        *subnet.know("br0", last),
        purpose=purpose,
    )
    ip_batch(
        host,
        "link set lo up",
        f"addr add {subnet.address(last)}/24 dev eth0",
        "link set eth0 up",
        *subnet.know("eth0", SERVICES, MACHINE),
        purpose=purpose,
    )
    ip_batch(None, *subnet.know(subnet.link, last), purpose=purpose)


def remove(lab: Group, subnet: Subnet) -> None:
    """Remove all of a lab, hosts too, but its files; nothing of it need be there."""
    lab.remove()
    if link_exists(subnet.link):
        # It may vanish on its own meanwhile, with the namespace that holds its other end.
        run(["ip", "link", "del", subnet.link], purpose="", check=False)
