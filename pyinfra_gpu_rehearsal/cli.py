"""The command line of the lab: throwaway hosts up, down, their faults, and a whole rehearsal."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pyinfra_gpu_rehearsal.aptconfig import RELEASES
from pyinfra_gpu_rehearsal.commands import remove_tree
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.host import LabHost
from pyinfra_gpu_rehearsal.lab import NONE_UP, Lab
from pyinfra_gpu_rehearsal.nvidia.machines import MACHINES
from pyinfra_gpu_rehearsal.run import run as rehearse
from pyinfra_gpu_rehearsal.state import Machine, cache_folder, local_prefix

# Does one command; None = it succeeded, otherwise its exit code.
Handler = Callable[[argparse.Namespace], int | None]


def run_command(parser: argparse.ArgumentParser, words: Sequence[str] | None = None) -> int:
    """Run one command of the lab and return its exit code: 0 done, 1 failed, 130 interrupted.

    + parser: an empty one, which knows how the program is called
    + words: what stands after that; None = what this process was called with

    A LabError is shown as its one sentence.
    """
    _add_commands(parser)
    arguments = parser.parse_args(words)
    handler: Handler = arguments.handler
    try:
        return handler(arguments) or 0
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the next `up` cleans up, or `down` does", file=sys.stderr)
        return 130


def _run(arguments: argparse.Namespace) -> int:
    return rehearse(Path(arguments.directory))


def _lab(arguments: argparse.Namespace) -> Lab:
    return Lab(Path(arguments.directory))


def _up(arguments: argparse.Namespace) -> None:
    lab = _lab(arguments)
    lab.up(arguments.count, machine=arguments.machine, release=arguments.os)
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
    command = f"ssh -F {lab.shown_ssh_config} {host.name}"
    machine = host.machine.name if host.machine else "no GPU"
    if not host.is_on():
        return host.name, host.address, "off", "-", machine, command
    state = host.run("systemctl is-system-running", check=False).stdout.strip() or "booting"
    return host.name, host.address, state, f"{host.boot_age():.0f} s", machine, command


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


def _snapshot(arguments: argparse.Namespace) -> None:
    _lab(arguments).snapshot(arguments.name, arguments.snapshot)
    print(f"{arguments.name} is kept as {arguments.snapshot}")


def _restore(arguments: argparse.Namespace) -> None:
    _lab(arguments).restore(arguments.name, arguments.snapshot)
    print(f"{arguments.name} is again as it was in {arguments.snapshot}")


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


def _add_commands(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--directory", default=".rehearsal", help="the lab's folder (default: %(default)s)"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, handler: Handler, help_: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=help_, description=help_)
        command.set_defaults(handler=handler)
        return command

    add("run", _run, "make two throwaway hosts, deploy to them twice, and show what happened")
    up = add("up", _up, "make throwaway hosts, or switch them on again")
    up.add_argument("count", nargs="?", type=int, default=2, help="how many (default: 2)")
    up.add_argument(
        "--machine",
        choices=tuple(MACHINES),
        help="make those that are new with simulated GPUs (default: without)",
    )
    up.add_argument(
        "--os",
        choices=tuple(RELEASES),
        default="",
        help="what runs on them (default: what runs on those that are there, else on this machine)",
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
    for name, handler, help_ in (
        ("snapshot", _snapshot, "keep what a host has on its disk, to come back to it"),
        ("restore", _restore, "bring a host back to a snapshot"),
    ):
        command = add(name, handler, help_)
        command.add_argument("name", help="gpu1, gpu2 ...")
        command.add_argument("snapshot", help="the name of the snapshot")
    _add_faults(add)


def _add_faults(add: Callable[[str, Handler, str], argparse.ArgumentParser]) -> None:
    network = add("network", _network, "break or restore a host's network")
    network.add_argument("name", help="gpu1, gpu2 ...")
    network.add_argument("what", choices=("cut", "restore", "delay"))
    network.add_argument("ms", nargs="?", type=int, default=0, help="delay in milliseconds")
    disk = add("disk", _disk, "fill or free the disk under a host's /opt")
    disk.add_argument("name", help="gpu1, gpu2 ...")
    disk.add_argument("what", choices=("full", "free"))
