"""The command line of the lab: throwaway hosts up and down, and a whole rehearsal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyinfra_gpu_rehearsal.base_image import RELEASES
from pyinfra_gpu_rehearsal.commands import LabError, cache_folder, remove_tree
from pyinfra_gpu_rehearsal.control_group import labs
from pyinfra_gpu_rehearsal.lab import NONE_UP, Lab
from pyinfra_gpu_rehearsal.run import run as rehearse


def run_command(parser: argparse.ArgumentParser, words: Sequence[str] | None = None) -> int:
    """Run one command of the lab and return its exit code: 0 done, 1 failed, 130 interrupted.

    + parser: an empty one, which knows how the program is called
    + words: what stands after that; None = what this process was called with

    A LabError is shown as its one sentence.
    """
    directory = "the lab's folder (default: %(default)s)"
    parser.add_argument("--directory", default=".rehearsal", help=directory)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, help_, arguments) in COMMANDS.items():
        command = commands.add_parser(name, help=help_, description=help_)
        for argument in arguments.split():
            command.add_argument(argument, **ARGUMENTS[argument])
    asked = vars(parser.parse_args(words))
    lab, (act, *_) = Lab(Path(asked.pop("directory"))), COMMANDS[asked.pop("command")]
    try:
        answer = act(lab, **asked)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the next `up` cleans up, or `down` does", file=sys.stderr)
        return 130
    if isinstance(answer, str):
        print(answer)
    return answer if isinstance(answer, int) else 0


def _up(lab: Lab, count: int, machine: str, os: str) -> str:
    lab.up(count, machine=machine, release=os)
    return _list(lab)


def _clean(lab: Lab) -> str:
    lab.down()
    if labs():
        return "other throwaway hosts are up on this machine: their base image is kept"
    remove_tree(cache_folder())
    return f"removed {cache_folder()}; a Debian package that was installed for it stays"


def _list(lab: Lab) -> str:
    lines = []
    for host in lab.all_hosts():
        state = "off"
        if host.is_on():
            state = host.run("systemctl is-system-running", check=False).stdout.strip()
        machine = f"{host.machine.name} (rehearsal)" if host.machine else "no GPU"
        enter = f"ssh -F {lab.shown_ssh_config} {host.name}"
        lines.append(f"{host.name:<6} {host.address:<14} {state:<9} {machine}: {enter}")
    return "\n".join(lines) or NONE_UP


def _newer_driver(lab: Lab) -> str:
    return f"NVIDIA's repository (rehearsal) has the driver {lab.nvidia.offer_newer()} as well"


# What is done with a lab and the arguments, what that is for, and those arguments.
COMMANDS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "run": (rehearse, "make two throwaway hosts, deploy twice, and show what happened", ""),
    "up": (_up, "make hosts, or switch them on again", "count --machine --os"),
    "down": (Lab.down, "remove the hosts and everything made for them", ""),
    "clean": (_clean, "remove hosts, base image and downloaded wheels", ""),
    "list": (_list, "show the hosts and how to enter them", ""),
    "fresh": (
        lambda lab, name: lab.host(name).fresh(), "make a host a bare machine again", "name"
    ),
    "power-off": (lambda lab, name: lab.host(name).power_off(), "cut a host's power", "name"),
    "newer-driver": (_newer_driver, "have NVIDIA's repository offer a newer driver", ""),
}  # fmt: skip
ARGUMENTS: dict[str, dict[str, Any]] = {
    "name": {"help": "gpu1, gpu2 ..."},
    "count": {"nargs": "?", "type": int, "default": 2, "help": "how many (default: 2)"},
    "--machine": {
        "default": "",
        "help": "make those that are new with simulated GPUs, as in '2x RTX 5090'",
    },
    "--os": {
        "choices": tuple(RELEASES),
        "default": "",
        "help": "what runs on them (default: what runs on those that are there, else here)",
    },
}
