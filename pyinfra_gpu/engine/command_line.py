"""Check what a pyinfra command line declares, before pyinfra opens a connection.

pyinfra merges CLI, host and group data only after the inventory is loaded, and runs deploy code
only after it connected. A typing error should not need a reachable host to be found. pyinfra
executes `config.py` first of all, so ours calls `begin` there: it reads the same command line
with pyinfra's own parser, loads the same inventory, and resolves every host.

This also corrects an exit code: pyinfra 3.10 exits 0 when the inventory path does not exist, when
it holds no host, and when ``--limit`` matches none.
"""

from __future__ import annotations

import difflib
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

import click
from pyinfra import state
from pyinfra.api.exceptions import DeployError, PyinfraError
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.context import ctx_state
from pyinfra_cli import cli as program
from pyinfra_cli.exceptions import UnexpectedExternalError
from pyinfra_cli.inventory import make_inventory
from pyinfra_cli.util import parse_cli_arg

from pyinfra_gpu import host_names
from pyinfra_gpu.engine import folding, journal, transport
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.engine.ending import Ended, on_signal
from pyinfra_gpu.engine.groups import wrong_group
from pyinfra_gpu.errors import sentence, shown
from pyinfra_gpu.text import columns, wrapped

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.inventory import Inventory

_PYINFRA = ("pyinfra", "__main__.py")
"""What the program is called that runs deploys."""

_PYINFRAS_OWN = ("config.py", "deploy.py")
"""Beside which inventories may lie, and which are none."""


def begin() -> None:
    """Check what is declared, and make a run of pyinfra's end and tell as one of ours should.

    For config.py, which pyinfra executes first. Nothing happens in a program that is not pyinfra.
    """
    options = _own_options()
    if options is None:
        return
    _end_honestly()
    check(sys.argv[1:])
    told = options.get("debug") or options.get("debug_all") or options.get("verbosity")
    if _deploys(options) and not told:  # what `exec` and `fact` print is what they are run for
        folding.fold()
    only_looks = options.get("dry") or list(options.get("operations") or ())[:1] == ["fact"]
    if only_looks and not sys.stdin.isatty():
        # It would ask whether to go on without a host, and end in a traceback. The exit code says
        # that one was not reached; a run that acts is refused by `problems`.
        program._set_fail_prompts = lambda state, config: None


def check(arguments: Sequence[str]) -> None:
    """Exit with status 1 and one sentence per error if the declared hosts cannot be resolved.

    + arguments: pyinfra's command line without the program name
    """
    ensure_ssh_folder()
    errors = problems(arguments)
    for error in errors:
        first, lines = "--> pyinfra-gpu: ", [error]
        if sys.stderr.isatty():  # none breaks a word there; elsewhere it is one line
            lines = wrapped(error, first, "    ", whole_words=True, width=columns())
            lines[0] = lines[0].removeprefix(first)
        styled = click.style("pyinfra-gpu", fg="red", bold=True)
        click.echo(f"--> {styled}: " + "\n".join(lines), err=True)
    if errors:
        raise SystemExit(1)


def _end_honestly() -> None:
    """Make Ctrl-C end pyinfra with 130 and a word about the hosts; pyinfra 3.10 exits with 0.

    SIGTERM and SIGHUP, a terminal that is closed, end it with 143 and 129 and the same word: by
    themselves they leave no table, and no idea that hosts go on. Under nohup SIGHUP is ignored.
    """

    def interrupted() -> None:
        with suppress(OSError):  # the terminal may be what is gone
            click.echo(
                "--> interrupted: a command that was begun goes on on its host; the next run waits"
                " for it and finishes what is left",
                err=True,
            )
        # pyinfra disconnects through the same pool that waits for the hosts' commands: without
        # this the end would wait for them too, for ever where a host has stopped answering.
        if ctx_state.isset() and state.initialised:  # type: ignore[no-untyped-call]
            journal.interrupt()
            state.pool.kill(block=False)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
            on_signal(number, interrupted)


def require_folder(deploy_file: str) -> None:
    """Refuse to deploy from another folder than the deploy file's.

    pyinfra takes config.py, group_data and tasks from the current folder; from another one, half
    of what is declared would silently be missing.

    Raises DeployError.
    """
    home = Path(deploy_file).resolve().parent
    if Path.cwd().resolve() != home:
        raise DeployError(f"run pyinfra in {home} (cd there, or add --chdir {home})")


def ensure_ssh_folder() -> None:
    """Make ~/.ssh where it is missing, as ssh itself does before it stores a host's key."""
    Path("~/.ssh").expanduser().mkdir(mode=0o700, exist_ok=True)


def problems(arguments: Sequence[str]) -> list[str]:
    """Return one sentence for each thing wrong with what this command line declares."""
    transport.install()
    options = _parse(arguments)
    if options is None or not options.get("inventory"):
        return []  # pyinfra's own usage errors and --version are pyinfra's to answer
    name = str(options["inventory"])
    if wrong := _wrong_options(options):
        return [wrong]
    inventory = _load(name, options)
    if isinstance(inventory, str):
        return [inventory]
    if not len(inventory):
        return [_nothing_in(name)]
    hosts = _selected(inventory, options)
    known = ", ".join(host.name for host in inventory)
    if unknown := [each for each in options.get("limit") or () if _names_nobody(inventory, each)]:
        return [f"--limit {' '.join(unknown)} names no host of {name}; it has: {known}"]
    if not hosts:
        asked = " ".join([*(options.get("limit") or ()), *(options.get("exclude") or ())])
        return [f"--limit/--exclude {asked} leaves no host of {name}; it has: {known}"]
    errors = [wrong for host in hosts if (wrong := _wrong_data(host))]
    told = options.get("dry") or options.get("yes") or options.get("json_output")
    if not errors and _deploys(options) and not told and not sys.stdin.isatty():
        return ["pyinfra wants to ask before it acts, and there is no terminal: add -y or --dry"]
    return errors


def _wrong_data(host: Host) -> str | None:
    """Return what is wrong with one host's data, whatever it is: it must hide no other's."""
    if wrong := _wrong_name(host):
        return wrong
    try:
        across = declared(host).smoke.across
    except PyinfraError as error:
        return str(error)
    except RecursionError:
        return f"host {host.name}: a value in its data contains itself, or is nested too deep"
    except Exception as error:
        return f"host {host.name}: its data cannot be read ({error!r})"
    if across is None or not across.impossible:
        return None
    return sentence(
        f"host {host.name}",
        "smoke_across_hosts",
        across.hosts,
        f"cannot be: {across.impossible}",
        allowed="a group of at least two hosts that all declare it, or True",
        remedy="correct smoke_across_hosts, or remove it",
    )


def _wrong_name(host: Host) -> str | None:
    """Return what keeps a host from being named or looked up: of one, it would end all's run."""
    if fault := host_names.unfit(host.name):
        return f"host {shown('', host.name)}: its name {fault}; correct it in the inventory"
    if host.connector_cls is not SSHConnector:
        return None
    key = "ssh_hostname" if host.data.get("ssh_hostname") else "its name"
    address = host.data.get("ssh_hostname") or host.name
    fault = host_names.unresolvable(address)
    if fault is None:
        return None
    return sentence(
        f"host {host.name}",
        key,
        address,
        fault,
        allowed="a name of DNS's or of ~/.ssh/config, or an address",
        remedy="correct it, or give the address as ssh_hostname",
    )


def selected(arguments: Sequence[str]) -> tuple[Inventory, list[Host]]:
    """Return the inventory of a command line without `problems`, and the hosts that it chooses."""
    options = _parse(arguments) or {}
    inventory = _make_inventory(str(options["inventory"]), options)
    return inventory, _selected(inventory, options)


def members(arguments: Sequence[str], group: str, option: str) -> tuple[str, ...] | str:
    """Return the hosts of a group that a command line means, else one sentence why there are none.

    + option: by which the group was given
    """
    options = _parse(arguments) or {}
    name = str(options.get("inventory"))
    inventory = _load(name, options)
    if isinstance(inventory, str):
        return inventory
    if not len(inventory):
        return _nothing_in(name)
    known = {each: len(inventory.get_group(each)) for each in inventory.groups if each != "all"}
    if group in known or group == "all":
        hosts = inventory.get_group(group) if group in inventory.groups else list(inventory)
        left = tuple(each.name for each in hosts if each in _selected(inventory, options))
        return left or f"{option} {group}: no host of that group is left in {name}"
    near = difflib.get_close_matches(group, known, n=1)
    counted = ", ".join(f"{each} ({number})" for each, number in known.items() if number)
    hint = f"did you mean {near[0]}?" if near else f"its groups are {counted or 'none'}"
    return f"{option} {group}: {name} has no group {group}; {hint}"


def described() -> str:
    """Name this process's command in a few words, without its options: they may hold secrets."""
    options = _own_options()
    if options is None:
        return Path(sys.argv[0]).name or "python"
    files = [each for each in options.get("operations") or () if str(each).endswith(".py")]
    return " ".join(["pyinfra", str(options.get("inventory")), *map(str, files)])


def _own_options() -> dict[str, Any] | None:
    """Return the options of this process's command line; None where it is not pyinfra's."""
    return _parse(sys.argv[1:]) if Path(sys.argv[0]).name in _PYINFRA else None


def _deploys(options: dict[str, Any]) -> bool:
    return any(str(each).endswith(".py") for each in options.get("operations") or ())


def _wrong_options(options: dict[str, Any]) -> str | None:
    if options.get("dry") and options.get("yes"):
        return "-y and --dry together make pyinfra look at nothing at all: leave out -y"
    malformed = [item for item in options.get("data") or () if "=" not in item]
    if malformed:
        return f"--data {malformed[0]}: expected KEY=VALUE, such as --data smoke=always"
    return None


def _parse(arguments: Sequence[str]) -> dict[str, Any] | None:
    try:
        context: click.Context = program.cli.make_context(
            "pyinfra", list(arguments), resilient_parsing=True
        )
    except click.ClickException:
        return None
    return context.params


def _load(name: str, options: dict[str, Any]) -> Inventory | str:
    """Return the inventory as pyinfra makes it, or one sentence that says why it cannot."""
    try:
        wrong = wrong_group(name, _group_data(options)) if Path(name).is_file() else None
        return wrong or _make_inventory(name, options)
    except PyinfraError as error:
        return str(error)
    except SyntaxError as error:
        return f"{error.filename} line {error.lineno}: {error.msg}"
    except UnexpectedExternalError as error:  # without the traceback through pyinfra
        cause = error.exception
        lines = [f.lineno for f in extract_tb(cause.__traceback__) if f.filename == error.filename]
        where = f" line {lines[-1]}" if lines else ""
        return f"{error.filename}{where}: {type(cause).__name__}: {cause}"
    except Ended:
        raise
    except SystemExit as end:
        users = [each for each in extract_tb(end.__traceback__) if each.filename[0] != "<"]
        return (
            f"{users[-1].filename} line {users[-1].lineno} ends the program (exit code"
            f" {end.code!s:.80}) while the inventory is read, so no host was looked at: let it"
            " raise an error, or declare no host"
        )
    except Exception as error:  # pyinfra takes a list of hosts apart without looking at it
        return (
            f"{name} is not an inventory ({type(error).__name__}: {error}); it is a Python file"
            ' with lists of names or (name, {"key": value}), such as inventories/lab.py'
        )


def _make_inventory(name: str, options: dict[str, Any]) -> Inventory:
    pairs = (item.split("=", 1) for item in options.get("data") or ())
    inventory: Inventory = make_inventory(
        name,
        cwd=str(Path.cwd()),
        override_data={key: parse_cli_arg(value) for key, value in pairs},
        group_data_directories=_group_data(options),
    )
    return inventory


def _group_data(options: dict[str, Any]) -> tuple[str, ...]:
    return tuple(options.get("group_data") or ())


def _selected(inventory: Inventory, options: dict[str, Any]) -> list[Host]:
    """Return the hosts that ``--limit`` and ``--exclude`` leave, by pyinfra's rules."""
    limit = options.get("limit") or ()
    exclude = options.get("exclude") or ()
    return [
        host
        for host in inventory
        if (not limit or _matches(inventory, host, limit))
        and not _matches(inventory, host, exclude)
    ]


def _names_nobody(inventory: Inventory, limit: str) -> bool:
    """Tell whether a limit is a slip: beside another one it would be passed over."""
    known = limit in inventory.groups
    return not known and not any(fnmatch(host.name, limit) for host in inventory)


def _matches(inventory: Inventory, host: Host, patterns: Sequence[str]) -> bool:
    for pattern in patterns:
        if pattern in inventory.groups:
            if host in inventory.get_group(pattern):
                return True
        elif fnmatch(host.name, pattern):
            return True
    return False


def _nothing_in(name: str) -> str:
    path = Path(name)
    if path.exists():
        return f'{name} holds no host: it needs a list, such as `gpu = ["ws1.example"]`'
    beside = [each for each in path.parent.glob("*.py") if each.name not in _PYINFRAS_OWN]
    known = {each.stem: str(each) for each in sorted({*beside, *Path("inventories").glob("*.py")})}
    near = difflib.get_close_matches(path.stem, known, n=1, cutoff=0.5)
    there = ", ".join(sorted(known.values())) or "none"
    hint = f"did you mean {known[near[0]]}?" if near else f"there is: {there}"
    return f"{name} is neither an inventory file nor a host that resolves; {hint}"
