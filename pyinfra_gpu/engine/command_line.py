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
import logging
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from pyinfra import logger, state
from pyinfra.api.exceptions import ConnectorDataTypeError, DeployError, PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.connectors.base import host_to_connector_data
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.context import ctx_state
from pyinfra_cli import cli as program

from pyinfra_gpu import host_names
from pyinfra_gpu.engine import inventory as inventories
from pyinfra_gpu.engine import journal, transport
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.engine.ending import on_signal
from pyinfra_gpu.errors import sentence, shown
from pyinfra_gpu.text import without_escapes

_PYINFRA = ("pyinfra", "__main__.py")
"""What the program is called that runs deploys."""


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
        logger.addFilter(Folded())
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
        click.echo(f"--> {click.style('pyinfra-gpu', fg='red', bold=True)}: {error}", err=True)
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
    if options.get("dry") and options.get("yes"):
        return ["-y and --dry together make pyinfra look at nothing at all: leave out -y"]
    if malformed := [item for item in options.get("data") or () if "=" not in item]:
        return [f"--data {malformed[0]}: expected KEY=VALUE, such as --data smoke=always"]
    inventory = inventories.load(options)
    if isinstance(inventory, str):
        return [inventory]
    limit, exclude = (list(options.get(each) or ()) for each in ("limit", "exclude"))
    known = ", ".join(host.name for host in inventory)
    unknown = [each for each in limit if not inventories.means_somebody(inventory, each)]
    if unknown:  # beside another one it would be passed over
        return [f"--limit {' '.join(unknown)} names no host of {name}; it has: {known}"]
    hosts = inventories.chosen(inventory, options)
    if not hosts:
        asked = " ".join([*limit, *exclude])
        return [f"--limit/--exclude {asked} leaves no host of {name}; it has: {known}"]
    errors = [wrong for host in hosts if (wrong := _wrong_data(host))]
    told = options.get("dry") or options.get("yes") or options.get("json_output")
    if not errors and _deploys(options) and not told and not sys.stdin.isatty():
        return ["pyinfra wants to ask before it acts, and there is no terminal: add -y or --dry"]
    return errors


def _wrong_data(host: Host) -> str | None:
    """Return what is wrong with one host's data, whatever it is: it must hide no other's."""
    if fault := host_names.unfit(host.name):
        return f"host {shown('', host.name)}: its name {fault}; correct it in the inventory"
    address = host.data.get("ssh_hostname") or host.name
    if host.connector_cls is SSHConnector and (fault := host_names.unresolvable(address)):
        return sentence(
            f"host {host.name}",
            "ssh_hostname" if host.data.get("ssh_hostname") else "its name",
            address,
            fault,
            allowed="a name of DNS's or of ~/.ssh/config, or an address",
            remedy="correct it, or give the address as ssh_hostname",
        )
    try:
        kind = host.connector_cls
        host_to_connector_data(kind.data_cls, kind.data_meta, host.data)
        across = declared(host).smoke.across
    except ConnectorDataTypeError as error:
        return f"host {host.name}: {str(error).removeprefix('Invalid connector data ')}"
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


def selected(arguments: Sequence[str]) -> tuple[Inventory, list[Host]]:
    """Return the inventory of a command line without `problems`, and the hosts that it chooses."""
    options = _parse(arguments) or {}
    inventory = inventories.load(options)
    if isinstance(inventory, str):
        raise PyinfraError(inventory)
    return inventory, inventories.chosen(inventory, options)


def members(arguments: Sequence[str], group: str, option: str) -> tuple[str, ...] | str:
    """Return the hosts of a group that a command line means, else one sentence why there are none.

    + option: by which the group was given
    """
    options = _parse(arguments) or {}
    inventory = inventories.load(options)
    if isinstance(inventory, str):
        return inventory
    name = options.get("inventory")
    known = {each: len(inventory.get_group(each)) for each in inventory.groups if each != "all"}
    if group in known or group == "all":
        hosts = inventory.get_group(group) if group in inventory.groups else list(inventory)
        left = [each.name for each in inventories.chosen(inventory, options) if each in hosts]
        return tuple(left) or f"{option} {group}: no host of that group is left in {name}"
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


def _parse(arguments: Sequence[str]) -> dict[str, Any] | None:
    try:
        context: click.Context = program.cli.make_context(
            "pyinfra", list(arguments), resilient_parsing=True
        )
    except click.ClickException:
        return None
    return context.params


_TABLES = ("--> Detected changes:", "--> Results:")
_NOTHING = re.compile(r"\[[^\]]+\]\s+(Connected|No changes|Skipped|Ready: .*\.py)")
_SUCCESS = re.compile(r"\[(?P<host>[^\]]+)\]\s+Success")


class Folded(logging.Filter):
    """Drops pyinfra's lines of operations that change nothing, and headers with nothing below.

    pyinfra has no option for that. Where this run has a table of ours, pyinfra's own tables of the
    same are left out. What is not recognised passes: with other words in a later pyinfra the lines
    would be back, and nothing would be lost.
    """

    _header: logging.LogRecord | None = None
    _in_table = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a line is shown now; the header that it belongs to is shown before it."""
        if record.levelno < logging.INFO:
            return True
        text = without_escapes(record.getMessage())
        begun = ctx_state.isset() and state.initialised  # type: ignore[no-untyped-call]
        book = journal.current() if begun else None
        if text.startswith("--> "):
            self._header = record if text.startswith("--> Starting ") else None
            self._in_table = text.startswith(_TABLES) and book is not None
            return not (self._header or self._in_table)
        # What came before a success says that it was none.
        success = _SUCCESS.fullmatch(text)
        told = success and book and book.has_problem(success["host"])
        if record.levelno == logging.INFO and (self._in_table or told or _NOTHING.fullmatch(text)):
            return False
        if self._header is not None:
            header, self._header = self._header, None
            logger.callHandlers(header)
        return True
