"""The command line of the lab: throwaway hosts up and down, and a whole rehearsal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from pyinfra_gpu_rehearsal.base_image import RELEASES
from pyinfra_gpu_rehearsal.commands import LabError, cache_folder, remove_tree
from pyinfra_gpu_rehearsal.control_group import labs
from pyinfra_gpu_rehearsal.lab import NONE_UP, Lab
from pyinfra_gpu_rehearsal.run import run as rehearse


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LabError as error:
            raise click.ClickException(str(error)) from None
        except KeyboardInterrupt:
            print("interrupted: the next `up` cleans up, or `down` does", file=sys.stderr)
            return 130


@click.group("rehearsal", cls=_Commands)
@click.option("--directory", default=".rehearsal", show_default=True, help="the lab's folder")
@click.pass_context
def command(context: click.Context, directory: str) -> None:
    """Make throwaway hosts with simulated GPUs, to try a deploy."""
    context.obj = Lab(Path(directory))


_name = click.argument("name")


@command.command()
@click.pass_obj
def run(lab: Lab) -> int:
    """Make two throwaway hosts, deploy twice, and show what happened."""
    return rehearse(lab)


@command.command()
@click.argument("count", type=int, default=2)
@click.option("--machine", default="", help="what new hosts simulate, as in '2x RTX 5090'")
@click.option("--os", type=click.Choice([*RELEASES]), help="default: as there, or here")
@click.pass_obj
def up(lab: Lab, count: int, machine: str, os: str | None) -> None:
    """Make hosts, or switch them on again."""
    lab.up(count, machine=machine, release=os or "")
    _show(lab)


@command.command()
@click.pass_obj
def down(lab: Lab) -> None:
    """Remove the hosts and everything made for them."""
    lab.down()


@command.command()
@click.pass_obj
def clean(lab: Lab) -> None:
    """Remove hosts, base image and downloaded wheels."""
    lab.down()
    if labs():
        print("other throwaway hosts are up on this machine: their base image is kept")
        return
    remove_tree(cache_folder())
    print(f"removed {cache_folder()}; a Debian package that was installed for it stays")


@command.command("list")
@click.pass_obj
def list_(lab: Lab) -> None:
    """Show the hosts and how to enter them."""
    _show(lab)


def _show(lab: Lab) -> None:
    hosts = lab.all_hosts()
    for host in hosts:
        machine = f"{host.machine.name} (rehearsal)" if host.machine else "no GPU"
        enter = f"ssh -F {lab.shown_ssh_config} {host.name}"
        print(f"{host.name:<6} {host.address:<14} {host.state():<9} {machine}: {enter}")
    if not hosts:
        print(NONE_UP)


@command.command()
@_name
@click.pass_obj
def fresh(lab: Lab, name: str) -> None:
    """Make a host a bare machine again."""
    lab.fresh(name)


@command.command()
@_name
@click.pass_obj
def power_off(lab: Lab, name: str) -> None:
    """Cut a host's power."""
    lab.host(name).power_off()


@command.command()
@click.pass_obj
def newer_driver(lab: Lab) -> None:
    """Have NVIDIA's repository offer a newer driver."""
    print(f"NVIDIA's repository (rehearsal) has the driver {lab.nvidia.offer_newer()} as well")
