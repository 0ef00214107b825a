"""The lab's network: one bridge in a namespace of its own, one namespace for each host.

10.77.N.0/24: .1 is the lab's services, .11, .12 ... the hosts, .254 this machine. There is no
way out: no route, no address translation, no forwarding, no change to this machine's firewall.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import run
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


def occupied_networks(addresses: str, routes: str) -> list[str]:
    """Return the IPv4 networks in use, from the JSON of `ip -j -4 addr` and `ip -j -4 route`."""
    found: list[str] = []
    for link in json.loads(addresses or "[]"):
        found += [f"{a['local']}/{a['prefixlen']}" for a in link.get("addr_info", [])]
    for route in json.loads(routes or "[]"):
        if re.match(r"^\d+\.\d+\.\d+\.\d+(/\d+)?$", route.get("dst", "")):
            found.append(route["dst"])
    return found


def networks_of_machine() -> list[str]:
    """Return the IPv4 networks this machine has addresses in or routes to."""
    purpose = "reading the machine's networks"
    addresses = run(["ip", "-j", "-4", "addr"], purpose=purpose).stdout
    routes = run(["ip", "-j", "-4", "route", "show", "table", "all"], purpose=purpose).stdout
    return occupied_networks(addresses, routes)


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

    @property
    def link(self) -> str:
        """The interface through which this machine reaches the lab."""
        return f"pgpu-{self.lab_id}"


def ip_batch(pid: int | None, lines: Sequence[str], *, purpose: str) -> None:
    """Run the `ip` commands LINES in the network namespace of process PID (None: the machine's)."""
    enter = [] if pid is None else ["nsenter", f"--net=/proc/{pid}/ns/net"]
    run([*enter, "ip", "-batch", "-"], stdin="\n".join(lines) + "\n", purpose=purpose)


def link_exists(name: str) -> bool:
    """Tell whether this machine has the interface NAME."""
    return Path("/sys/class/net", name).exists()


def remove_link(name: str) -> None:
    """Remove the interface NAME of this machine if it is there."""
    if link_exists(name):
        # It may vanish on its own meanwhile, with the namespace that holds its other end.
        run(["ip", "link", "del", name], purpose=f"removing {name}", check=False)


def set_up_lab(subnet: Subnet, holder: int) -> None:
    """Make the bridge in the namespace of process HOLDER and this machine's link to it."""
    services, machine = subnet.address(SERVICES), subnet.address(MACHINE)
    ip_batch(
        holder,
        [
            "link set lo up",
            "link add br0 type bridge stp_state 0 forward_delay 0",
            f"link set br0 address {subnet.mac(SERVICES)} up",
            f"addr add {services}/24 dev br0",
        ],
        purpose="making the lab's network",
    )
    ip_batch(
        None,
        [
            f"link add {subnet.link} address {subnet.mac(MACHINE)} type veth"
            f" peer name machine netns {holder}",
            f"addr add {machine}/24 dev {subnet.link}",
            f"link set {subnet.link} up",
            *_neighbours(subnet, subnet.link, (SERVICES,)),
        ],
        purpose="making this machine's link to the lab",
    )
    ip_batch(
        holder,
        ["link set machine master br0 up", *_neighbours(subnet, "br0", (MACHINE,))],
        purpose="making the lab's network",
    )


def set_up_host(subnet: Subnet, name: str, last: int, *, holder: int, host: int) -> None:
    """Connect the namespace of process HOST, as address(LAST), to the lab's bridge."""
    purpose = f"connecting {name}"
    ip_batch(
        holder,
        [
            f"link add {name} type veth peer name eth0 address {subnet.mac(last)} netns {host}",
            f"link set {name} master br0 up",
            *_neighbours(subnet, "br0", (last,)),
        ],
        purpose=purpose,
    )
    ip_batch(
        host,
        [
            "link set lo up",
            f"addr add {subnet.address(last)}/24 dev eth0",
            "link set eth0 up",
            *_neighbours(subnet, "eth0", (SERVICES, MACHINE)),
        ],
        purpose=purpose,
    )
    ip_batch(None, _neighbours(subnet, subnet.link, (last,)), purpose=purpose)


def _neighbours(subnet: Subnet, device: str, lasts: Iterable[int]) -> list[str]:
    """Return commands that make the hardware addresses known for good.

    So a cut network is silent, as a dead line is: without them the sender would be told "no route
    to host" as soon as nobody answers its question for the address.
    """
    return [
        f"neigh replace {subnet.address(last)} lladdr {subnet.mac(last)} dev {device} nud permanent"
        for last in lasts
    ]
