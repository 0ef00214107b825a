"""The command line of the lab: throwaway hosts up, down, their faults, and a whole rehearsal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyinfra_gpu_rehearsal.aptconfig import RELEASES
from pyinfra_gpu_rehearsal.commands import remove_tree
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.host import LabHost
from pyinfra_gpu_rehearsal.lab import NONE_UP, Lab
from pyinfra_gpu_rehearsal.nvidia.machines import MACHINES
from pyinfra_gpu_rehearsal.placing import labs
from pyinfra_gpu_rehearsal.run import run as rehearse
from pyinfra_gpu_rehearsal.state import cache_folder


def run_command(parser: argparse.ArgumentParser, words: Sequence[str] | None = None) -> int:
    """Run one command of the lab and return its exit code: 0 done, 1 failed, 130 interrupted.

    + parser: an empty one, which knows how the program is called
    + words: what stands after that; None = what this process was called with

    A LabError is shown as its one sentence.
    """
    directory = "the lab's folder (default: %(default)s)"
    parser.add_argument("--directory", default=".rehearsal", help=directory)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (act, help_, arguments) in COMMANDS.items():
        command = commands.add_parser(name, help=help_, description=help_)
        command.set_defaults(act=act)
        for argument in arguments.split():
            command.add_argument(argument, **ARGUMENTS[argument])
    asked = vars(parser.parse_args(words))
    act, lab = asked.pop("act"), Lab(Path(asked.pop("directory")))
    asked.pop("command")
    try:
        return act(lab, **asked) or 0
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the next `up` cleans up, or `down` does", file=sys.stderr)
        return 130


def _up(lab: Lab, count: int, machine: str | None, os: str) -> None:
    lab.up(count, machine=machine, release=os)
    _list(lab)


def _clean(lab: Lab) -> None:
    lab.down()
    if labs():
        print("other throwaway hosts are up on this machine: their base image is kept")
        return
    remove_tree(cache_folder())
    print(f"removed {cache_folder()}; a Debian package that was installed for it stays")


def _row(lab: Lab, host: LabHost) -> tuple[str, ...]:
    command = f"ssh -F {lab.shown_ssh_config} {host.name}"
    machine = host.machine.name if host.machine else "no GPU"
    if not host.is_on():
        return host.name, host.address, "off", "-", machine, command
    state = host.run("systemctl is-system-running", check=False).stdout.strip() or "booting"
    return host.name, host.address, state, f"{host.boot_age():.0f} s", machine, command


def _list(lab: Lab) -> None:
    head = ("name", "address", "state", "booted", "machine (rehearsal)", "enter it with")
    rows = [head, *(_row(lab, host) for host in lab.all_hosts())]
    if len(rows) == 1:
        print(NONE_UP)
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        words = (word.ljust(width) for word, width in zip(row, widths, strict=True))
        print("  ".join(words).rstrip())


def _fresh(lab: Lab, name: str) -> None:
    lab.fresh(name)
    print(f"{name} is a bare machine again")


def _snapshot(lab: Lab, name: str, snapshot: str) -> None:
    lab.snapshot(name, snapshot)
    print(f"{name} is kept as {snapshot}")


def _restore(lab: Lab, name: str, snapshot: str) -> None:
    lab.restore(name, snapshot)
    print(f"{name} is again as it was in {snapshot}")


def _reboot(lab: Lab, name: str) -> None:
    lab.host(name).reboot()
    print(f"{name} has rebooted")


def _power_off(lab: Lab, name: str) -> None:
    lab.host(name).power_off()
    print(f"{name} has no power")


def _power_on(lab: Lab, name: str) -> None:
    host = lab.host(name)
    host.power_on()
    host.wait_ready()
    print(f"{name} is on")


def _network(lab: Lab, name: str, network: str, ms: int) -> None:
    lab.host(name).network(network, ms)
    done = {"cut": "cut", "restore": "as it should be", "delay": f"slowed by {ms} ms"}
    print(f"the network of {name} is {done[network]}")


def _disk(lab: Lab, name: str, disk: str) -> None:
    host = lab.host(name)
    (host.fill_disk if disk == "full" else host.free_disk)()
    print(f"/opt of {name} is full" if disk == "full" else f"/opt of {name} has space again")


# What is done with a lab and the arguments, what it is for, and those arguments.
COMMANDS: dict[str, tuple[Callable[..., int | None], str, str]] = {
    "run": (rehearse, "make two throwaway hosts, deploy to them twice, and show what happened", ""),
    "up": (_up, "make throwaway hosts, or switch them on again", "count --machine --os"),
    "down": (Lab.down, "remove the hosts and everything made for them", ""),
    "clean": (_clean, "remove the hosts, the base image and the downloaded wheels", ""),
    "list": (_list, "show the hosts and how to enter them", ""),
    "fresh": (_fresh, "make a host a bare machine again", "name"),
    "reboot": (_reboot, "reboot a host in good order", "name"),
    "power-off": (_power_off, "cut a host's power", "name"),
    "power-on": (_power_on, "switch a host on again", "name"),
    "snapshot": (_snapshot, "keep what a host has on its disk", "name snapshot"),
    "restore": (_restore, "bring a host back to a snapshot", "name snapshot"),
    "network": (_network, "break or restore a host's network", "name network ms"),
    "disk": (_disk, "fill or free the disk under a host's /opt", "name disk"),
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "name": {"help": "gpu1, gpu2 ..."},
    "snapshot": {"help": "the name of the snapshot"},
    "network": {"choices": ("cut", "restore", "delay")},
    "ms": {"nargs": "?", "type": int, "default": 0, "help": "delay in milliseconds"},
    "disk": {"choices": ("full", "free")},
    "count": {"nargs": "?", "type": int, "default": 2, "help": "how many (default: 2)"},
    "--machine": {
        "choices": tuple(MACHINES),
        "help": "make those that are new with simulated GPUs (default: without)",
    },
    "--os": {
        "choices": tuple(RELEASES),
        "default": "",
        "help": "what runs on them (default: what runs on those that are there, else here)",
    },
}
