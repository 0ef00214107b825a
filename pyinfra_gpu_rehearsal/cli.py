"""The verb `rehearsal` of the command line: throwaway hosts up, down, and their faults."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path

from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.ground import remove_tree
from pyinfra_gpu_rehearsal.host import LabHost
from pyinfra_gpu_rehearsal.lab import NONE_UP, Lab
from pyinfra_gpu_rehearsal.nvidia.machines import MACHINES
from pyinfra_gpu_rehearsal.state import Machine, cache_folder, local_prefix

Handler = Callable[[argparse.Namespace], int]


def _honest(handler: Callable[[argparse.Namespace], None]) -> Handler:
    """Turn HANDLER's LabError into its one sentence and exit code 1."""

    @wraps(handler)
    def run(arguments: argparse.Namespace) -> int:
        try:
            handler(arguments)
        except LabError as error:
            print(error, file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("interrupted: the next `up` cleans up, or `down` does", file=sys.stderr)
            return 130
        return 0

    return run


def _lab(arguments: argparse.Namespace) -> Lab:
    return Lab(Path(arguments.directory))


def _up(arguments: argparse.Namespace) -> None:
    lab = _lab(arguments)
    lab.up(arguments.count, machine=arguments.machine)
    _table(lab)


def _down(arguments: argparse.Namespace) -> None:
    _lab(arguments).down()


def _clean(arguments: argparse.Namespace) -> None:
    _lab(arguments).down()
    shutil.rmtree(local_prefix(), ignore_errors=True)
    if Machine().labs():
        print("other throwaway hosts are up on this machine: their base image is kept")
        return
    folder = cache_folder()
    remove_tree(folder)
    print(f"removed {folder}; a Debian package that was installed for it (mmdebstrap) stays")


def _list(arguments: argparse.Namespace) -> None:
    lab = _lab(arguments)
    if lab.all_hosts():
        _table(lab)
    else:
        print(NONE_UP)


def _row(lab: Lab, host: LabHost) -> tuple[str, str, str, str, str, str]:
    config = lab.ssh_config
    if config.is_relative_to(Path.cwd()):
        config = config.relative_to(Path.cwd())
    command = f"ssh -F {config} {host.name}"
    machine = host.machine.name if host.machine else "no GPU"
    if not host.is_on():
        return host.name, host.where, "off", "-", machine, command
    state = host.run("systemctl is-system-running", check=False).stdout.strip() or "booting"
    return host.name, host.where, state, f"{host.boot_age():.0f} s", machine, command


def _table(lab: Lab) -> None:
    head = ("name", "address", "state", "booted", "machine (rehearsal)", "enter it with")
    rows = [head, *(_row(lab, host) for host in lab.all_hosts())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        print(
            "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip()
        )


def _fresh(arguments: argparse.Namespace) -> None:
    _lab(arguments).fresh(arguments.name)
    print(f"{arguments.name} is a bare machine again")


def _reboot(arguments: argparse.Namespace) -> None:
    _lab(arguments).host(arguments.name).reboot()
    print(f"{arguments.name} has rebooted")


def _power_off(arguments: argparse.Namespace) -> None:
    _lab(arguments).host(arguments.name).power_off()
    print(f"{arguments.name} has no power")


def _power_on(arguments: argparse.Namespace) -> None:
    host = _lab(arguments).host(arguments.name)
    host.power_on()
    host.wait_ready()
    print(f"{arguments.name} is on")


def _network(arguments: argparse.Namespace) -> None:
    _lab(arguments).host(arguments.name).network(arguments.what, arguments.ms)
    done = {"cut": "cut", "restore": "as it should be", "delay": f"slowed by {arguments.ms} ms"}
    print(f"the network of {arguments.name} is {done[arguments.what]}")


def _disk(arguments: argparse.Namespace) -> None:
    host = _lab(arguments).host(arguments.name)
    if arguments.what == "full":
        host.fill_disk()
        print(f"/opt of {arguments.name} is full")
    else:
        host.free_disk()
        print(f"/opt of {arguments.name} has space again")


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Give PARSER the commands of `rehearsal`; each sets `handler`, which returns an exit code."""
    parser.add_argument(
        "--directory", default=".rehearsal", help="the lab's folder (default: %(default)s)"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(
        name: str, handler: Callable[[argparse.Namespace], None], help_: str
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=help_, description=help_)
        command.set_defaults(handler=_honest(handler))
        return command

    up = add("up", _up, "make throwaway hosts, or switch them on again")
    up.add_argument("count", nargs="?", type=int, default=2, help="how many (default: 2)")
    up.add_argument(
        "--machine",
        choices=tuple(MACHINES),
        help="make those that are new with simulated GPUs (default: without)",
    )
    add("down", _down, "remove the hosts and everything made for them")
    add("clean", _clean, "remove the hosts, the base image and the downloaded wheels")
    add("list", _list, "show the hosts and how to enter them")
    for name, handler, help_ in (
        ("fresh", _fresh, "make a host a bare machine again"),
        ("reboot", _reboot, "reboot a host in good order"),
        ("power-off", _power_off, "cut a host's power"),
        ("power-on", _power_on, "switch a host on again"),
    ):
        add(name, handler, help_).add_argument("name", help="gpu1, gpu2 ...")
    network = add("network", _network, "break or mend a host's network")
    network.add_argument("name", help="gpu1, gpu2 ...")
    network.add_argument("what", choices=("cut", "restore", "delay"))
    network.add_argument("ms", nargs="?", type=int, default=0, help="delay in milliseconds")
    disk = add("disk", _disk, "fill or free the disk under a host's /opt")
    disk.add_argument("name", help="gpu1, gpu2 ...")
    disk.add_argument("what", choices=("full", "free"))


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `rehearsal` to a command line."""
    help_ = "throwaway hosts to try a deploy on"
    add_commands(subparsers.add_parser("rehearsal", help=help_, description=help_))
