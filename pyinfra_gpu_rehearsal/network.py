"""The lab's network: one bridge in a namespace of its own, one namespace for each host.

10.77.N.0/24: .1 is the lab's file server, .11, .12 ... the hosts, .254 this machine. There is no
way out: no route, no address translation, no forwarding, no change to this machine's firewall.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import LabError, run

FIRST_HOST = 11
MOST_HOSTS = 200
SERVICES, MACHINE = 1, 254  # the last byte of their addresses
_SPACES = Path("/run/netns")  # where `ip netns` keeps network namespaces


def choose_subnet() -> int:
    """Return the first N of whose 10.77.N.0/24 this machine has no address and no route.

    Raises LabError where there is none.
    """
    command = ["ip", "-4", "route", "show", "table", "all"]  # its own addresses are among them
    said = run(command, purpose="reading the machine's networks").stdout
    used = {int(number) for number in re.findall(r"\b10\.77\.(\d+)\.", said)}
    if free := set(range(1, 255)) - used:
        return min(free)
    raise LabError("none of the networks 10.77.1.0/24 to 10.77.254.0/24 is free on this machine")


def link_exists(name: str) -> bool:
    """Tell whether this machine has the interface NAME."""
    return Path("/sys/class/net", name).exists()


@dataclass(frozen=True, slots=True)
class Subnet:
    """The network of the lab LAB_ID: its names, its addresses, and how it is made and unmade."""

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

    def space(self, name: str = "") -> str:
        """Return what the network namespace of the host NAME is called; of none, the bridge's."""
        return f"{self.link}-{name or 'bridge'}"

    def inside(self, name: str = "") -> list[str]:
        """Return the words before a command that is to run in the network of the host NAME."""
        return ["nsenter", f"--net={_SPACES / self.space(name)}"]

    def _ip(self, space: str, *lines: str) -> None:
        """Run the `ip` commands LINES in the network namespace SPACE; "": the machine's own."""
        where = ["-netns", space] if space else []
        purpose = "changing the lab's network"
        run(["ip", *where, "-batch", "-"], stdin="\n".join(lines) + "\n", purpose=purpose)

    def _new_space(self, name: str = "") -> str:
        run(["ip", "netns", "del", self.space(name)], purpose="", check=False)
        run(["ip", "netns", "add", self.space(name)], purpose="making a network namespace")
        self._ip(self.space(name), "link set lo up")
        return self.space(name)

    def _know(self, device: str, *lasts: int) -> list[str]:
        """Return commands that make hardware addresses known for good.

        So a cut network is silent, as a dead line is: without them the sender would be told "no
        route to host" as soon as nobody answers its question for the address.
        """
        return [
            f"neigh replace {self.address(n)} lladdr {self.mac(n)} dev {device} nud permanent"
            for n in lasts
        ]

    def start(self) -> None:
        """Make the bridge and this machine's link to it. Raises LabError."""
        bridge = self._new_space()
        self._ip(
            bridge,
            "link add br0 type bridge stp_state 0 forward_delay 0",
            f"link set br0 address {self.mac(SERVICES)} up",
            f"addr add {self.address(SERVICES)}/24 dev br0",
        )
        self._ip(
            "",
            f"link add {self.link} address {self.mac(MACHINE)} type veth"
            f" peer name machine netns {bridge}",
            f"addr add {self.address(MACHINE)}/24 dev {self.link}",
            f"link set {self.link} up",
            *self._know(self.link, SERVICES),
        )
        self._ip(bridge, "link set machine master br0 up", *self._know("br0", MACHINE))

    def connect(self, name: str, last: int) -> None:
        """Make the network of the host NAME, whose address ends in LAST, and connect it."""
        host = self._new_space(name)
        self._ip(
            self.space(),
            f"link add {name} type veth peer name eth0 address {self.mac(last)} netns {host}",
            f"link set {name} master br0 up",
            *self._know("br0", last),
        )
        self._ip(
            host,
            f"addr add {self.address(last)}/24 dev eth0",
            "link set eth0 up",
            *self._know("eth0", SERVICES, MACHINE),
        )
        self._ip("", *self._know(self.link, last))

    def cut(self, name: str, *, off: bool) -> None:
        """Cut the host NAME off the bridge, so that its frames are lost without a word, or not."""
        self._ip(self.space(), f"link set {name} {'nomaster' if off else 'master br0'}")

    def remove(self) -> None:
        """Remove all of it; nothing of it need be there."""
        for space in _SPACES.glob(f"{self.link}-*"):
            run(["ip", "netns", "del", space.name], purpose="removing the lab's network")
        if link_exists(self.link):
            # It may vanish on its own just then, with the namespace that holds its other end.
            run(["ip", "link", "del", self.link], purpose="", check=False)
