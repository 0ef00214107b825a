"""The command line of the lab: throwaway hosts up, down, their faults, and a whole rehearsal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pyinfra_gpu_rehearsal.base_image import RELEASES
from pyinfra_gpu_rehearsal.commands import remove_tree
from pyinfra_gpu_rehearsal.control_group import labs
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.lab import NONE_UP, Lab
from pyinfra_gpu_rehearsal.nvidia.machines import MACHINES
from pyinfra_gpu_rehearsal.run import run as rehearse
from pyinfra_gpu_rehearsal.state import cache_folder


def _up(lab: Lab, count: int, machine: str | None, os: str) -> str:
    lab.up(count, machine=machine, release=os)
    return _list(lab)


def _clean(lab: Lab) -> str:
    lab.down()
    if labs():
        return "other throwaway hosts are up on this machine: their base image is kept"
    remove_tree(cache_folder())
    return f"removed {cache_folder()}; a Debian package that was installed for it stays"


def _list(lab: Lab) -> str:
    rows = [("name", "address", "state", "machine (rehearsal)", "enter it with")]
    for host in lab.all_hosts():
        state = "off"
        if host.is_on():
            state = host.run("systemctl is-system-running", check=False).stdout.strip()
        machine = host.machine.name if host.machine else "no GPU"
        enter = f"ssh -F {lab.shown_ssh_config} {host.name}"
        rows.append((host.name, host.address, state, machine, enter))
    if len(rows) == 1:
        return NONE_UP
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (zip(row, widths, strict=True) for row in rows)
    return "\n".join("  ".join(word.ljust(w) for word, w in line).rstrip() for line in lines)


def _host(act: str) -> Callable[..., Any]:
    """Return what does it with a host."""
    return lambda lab, name, **asked: getattr(lab.host(name), act)(*asked.values())


def _power_on(lab: Lab, name: str) -> None:
    host = lab.host(name)
    host.power_on()
    host.wait_ready()


def _disk(lab: Lab, name: str, disk: str) -> None:
    host = lab.host(name)
    (host.fill_disk if disk == "full" else host.free_disk)()


# What is done with a lab and the arguments, what it is for, those arguments, and what is printed
# then, with the arguments and the answer in it.
COMMANDS: dict[str, tuple[Callable[..., Any], str, str, str]] = {
    "run": (rehearse, "make two throwaway hosts, deploy twice, and show what happened", "", ""),
    "up": (_up, "make hosts, or switch them on again", "count --machine --os", "{answer}"),
    "down": (Lab.down, "remove the hosts and everything made for them", "", ""),
    "clean": (_clean, "remove hosts, base image and downloaded wheels", "", "{answer}"),
    "list": (_list, "show the hosts and how to enter them", "", "{answer}"),
    "fresh": (Lab.fresh, "make a host a bare machine again", "name", "{name} is bare again"),
    "reboot": (_host("reboot"), "reboot a host in good order", "name", "{name} has rebooted"),
    "power-off": (_host("power_off"), "cut a host's power", "name", "{name} has no power"),
    "power-on": (_power_on, "switch a host on again", "name", "{name} is on"),
    "snapshot": (
        Lab.snapshot, "keep what a host has on its disk", "name snapshot",
        "{name} is kept as {snapshot}",
    ),
    "restore": (
        Lab.restore, "bring a host back to a snapshot", "name snapshot",
        "{name} is again as it was in {snapshot}",
    ),
    "network": (
        _host("network"), "break or restore a host's network", "name network ms",
        "{name}: network {network}",
    ),
    "disk": (_disk, "fill or free the disk under /opt", "name disk", "{name}: /opt {disk}"),
    "newer-driver": (
        lambda lab: lab.nvidia.publish_newer(), "have NVIDIA's repository offer a newer driver", "",
        "the simulated repository (rehearsal) has the driver {answer} as well",
    ),
}  # fmt: skip
ARGUMENTS: dict[str, click.Parameter] = {
    "name": click.Argument(["name"]),
    "snapshot": click.Argument(["snapshot"]),
    "network": click.Argument(["network"], type=click.Choice(["cut", "restore", "delay"])),
    "ms": click.Argument(["ms"], type=int, default=100),
    "disk": click.Argument(["disk"], type=click.Choice(["full", "free"])),
    "count": click.Argument(["count"], type=int, default=2),
    "--machine": click.Option(
        ["--machine"], type=click.Choice([*MACHINES]),
        help="make those that are new with simulated GPUs (default: without)",
    ),
    "--os": click.Option(
        ["--os"], type=click.Choice([*RELEASES]), default="",
        help="what runs on them (default: what runs on those that are there, else here)",
    ),
}  # fmt: skip


@click.group("rehearsal")
@click.option("--directory", default=".rehearsal", show_default=True, help="the lab's folder")
@click.pass_context
def command(context: click.Context, directory: str) -> None:
    """Make throwaway hosts with simulated GPUs, to try a deploy."""
    context.obj = Lab(Path(directory))


def _added(name: str) -> None:
    act, help_, arguments, said = COMMANDS[name]

    def run(lab: Lab, /, **asked: Any) -> int:
        try:
            answer = act(lab, **asked)
        except LabError as error:
            raise click.ClickException(str(error)) from None
        except KeyboardInterrupt:
            print("interrupted: the next `up` cleans up, or `down` does", file=sys.stderr)
            return 130
        if said:
            print(said.format(answer=answer, **asked))
        return answer if isinstance(answer, int) else 0

    params = [ARGUMENTS[each] for each in arguments.split()]
    called = click.pass_obj(run)
    command.add_command(
        click.Command(name, params=params, help=f"{help_[0].upper()}{help_[1:]}.", callback=called)
    )


for _name in COMMANDS:
    _added(_name)
