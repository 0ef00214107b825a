"""Check what a pyinfra command line declares, before pyinfra opens a connection.

pyinfra merges CLI, host and group data only after the inventory is loaded, and runs deploy code
only after it connected. A typing error should not need a reachable host to be found. pyinfra
executes `config.py` first of all, so ours calls `begin` there: it reads the same command line
with pyinfra's own parser, loads the same inventory, and resolves every host.

This also corrects exit codes and omissions: pyinfra 3.10 exits 0 when the inventory path does not
exist, when it holds no host, and when ``--limit`` matches none; and it passes over a variable that
it cannot read as a group of hosts. Nothing of a host's data is shown, which may hold secrets.
"""

from __future__ import annotations

import logging
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import click
import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop
from pydantic import Field, TypeAdapter, ValidationError
from pyinfra import logger, state
from pyinfra.api.exceptions import ConnectorDataTypeError, DeployError, PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.connectors.base import host_to_connector_data
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.context import ctx_state
from pyinfra_cli import cli as program
from pyinfra_cli.inventory import make_inventory
from pyinfra_cli.util import exec_file, parse_cli_arg

from pyinfra_gpu.engine import journal, transport
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.errors import SECRET_NAME
from pyinfra_gpu.text import without_escapes

_ENTRY = 'a name or (name, {"key": value})'
_Name = Annotated[str, Field(min_length=1)]
_GROUP: TypeAdapter[Any] = TypeAdapter(
    tuple[list[_Name | tuple[_Name, dict[str, Any]]], dict[str, Any]]
)
_NO_ADDRESS = re.compile(r"[\s@]|^[^:]*:[0-9]+$")
_GOES_ON = (
    "--> interrupted: a command that was begun goes on on its host; the next run waits for it and"
    " finishes what is left"
)
_NOT_INVENTORIES = ("config.py", "deploy.py")
_PYINFRA = ("pyinfra", "__main__.py")
"""What the program is called that runs deploys."""


def begin() -> None:
    """Check what is declared, and make a run of pyinfra's end and tell as one of ours should.

    For config.py, which pyinfra executes first. Nothing happens in a program that is not pyinfra.
    """
    options = _own_options()
    if options is None:
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        on_signal(number, _GOES_ON, _interrupt)
    check(sys.argv[1:])
    wants_all = options.get("debug") or options.get("debug_all") or options.get("verbosity")
    if _deploys(options) and not wants_all:  # `exec` and `fact` are run for what they print
        logger.addFilter(Folded())
    if options.get("dry") and not sys.stdin.isatty():
        # It would ask whether to go on without a host, and end in a traceback. The exit code says
        # that one was not reached; a run that acts is refused by `problems`.
        program._set_fail_prompts = lambda state, config: None


def _interrupt() -> None:
    """Have nothing waited for: pyinfra exits with 0 after Ctrl-C, and only when all hosts answer.

    It disconnects through the same pool that waits for the hosts' commands.
    """
    if ctx_state.isset() and state.initialised:  # type: ignore[no-untyped-call]
        if book := journal.current():
            book.interrupted = True  # what fails from here on is no fault of a host
        state.pool.kill(block=False)


def on_signal(number: signal.Signals, word: str, first: Callable[[], None] = lambda: None) -> None:
    """Have a signal end this process, with the exit code 128 + its number.

    + word: said on stderr when it comes
    + first: called before anything is ended

    One that is ignored, as SIGHUP under nohup, stays so. Python runs a handler in whichever
    greenlet it finds, and under pyinfra that is as often a host's, or the one in which paramiko
    reads, as the main one. `threading` drops a SystemExit in silence, and the run would go on; so
    it is raised in the main greenlet.
    """

    def ended(received: int, frame: FrameType | None) -> None:
        with suppress(OSError):  # the terminal may be what is gone
            click.echo(word, err=True)
        first()
        end, hub = SystemExit(128 + received), gevent.get_hub()
        if gevent.getcurrent() is hub.parent:
            raise end
        hub.loop.run_callback(hub.parent.throw, end)  # as soon as it waits

    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, ended)


@contextmanager
def ended_by(*numbers: signal.Signals) -> Iterator[None]:
    """Have each of these signals end what is inside, and say so; then they do what they did."""
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        on_signal(number, "interrupted")
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def check(arguments: Sequence[str]) -> None:
    """Exit with status 1 and one sentence per error if the declared hosts cannot be resolved.

    + arguments: pyinfra's command line without the program name
    """
    errors = problems(arguments)
    for error in errors:
        click.echo(f"--> {click.style('pyinfra-gpu', fg='red', bold=True)}: {error}", err=True)
    if errors:
        raise SystemExit(1)


def require_folder(deploy_file: str) -> None:
    """Refuse to deploy from another folder than the deploy file's.

    pyinfra takes config.py, group_data and tasks from the current folder; from another one, half
    of what is declared would silently be missing.

    Raises DeployError.
    """
    home = Path(deploy_file).resolve().parent
    if Path.cwd().resolve() != home:
        raise DeployError(f"run pyinfra in {home} (cd there, or add --chdir {home})")


def problems(arguments: Sequence[str]) -> list[str]:
    """Return one sentence for each thing wrong with what this command line declares."""
    transport.install()
    options = _parse(arguments)
    if options is None or not options.get("inventory"):
        return []  # pyinfra's own usage errors and --version are pyinfra's to answer
    if options.get("dry") and options.get("yes"):
        return ["-y and --dry together make pyinfra look at nothing at all: leave out -y"]
    if malformed := [item for item in options.get("data") or () if "=" not in item]:
        return [f"--data {malformed[0]}: expected KEY=VALUE, such as --data smoke=always"]
    inventory = _load(options)
    if isinstance(inventory, str):
        return [inventory]
    limit, exclude = (list(options.get(each) or ()) for each in ("limit", "exclude"))
    known = f"{options['inventory']}; it has: {', '.join(host.name for host in inventory)}"
    if unknown := [each for each in limit if not _meant(inventory, [each])]:
        return [f"--limit {' '.join(unknown)} names no host of {known}"]
    hosts = _chosen(inventory, options)
    if not hosts:
        return [f"--limit/--exclude {' '.join([*limit, *exclude])} leaves no host of {known}"]
    errors = [wrong for host in hosts if (wrong := _wrong_data(host))]
    asks = not (options.get("dry") or options.get("yes") or options.get("json_output"))
    if not errors and asks and _deploys(options) and not sys.stdin.isatty():
        return ["pyinfra wants to ask before it acts, and there is no terminal: add -y or --dry"]
    return errors


def _wrong_data(host: Host) -> str | None:
    """Return what is wrong with one host's data, whatever it is: it must hide no other's."""
    address = str(host.data.get("ssh_hostname") or host.name)
    if host.connector_cls is SSHConnector and _NO_ADDRESS.search(address):
        return (
            f"host {host.name!r}: {address!r} is no address: a user is declared as ssh_user, a port"
            " as ssh_port"
        )
    try:
        kind = host.connector_cls
        host_to_connector_data(kind.data_cls, kind.data_meta, host.data)
        declared(host)
    except ConnectorDataTypeError as error:
        key, _, detail = str(error).removeprefix("Invalid connector data ").partition("::")
        key = key.strip("` ")
        value = "" if SECRET_NAME.search(key) else f" = {host.data.get(key)!r}"
        return (
            f"host {host.name}: {key}{value} has the wrong type ({detail.strip()}); a number, True"
            " and False are written without quotes"
        )
    except PyinfraError as error:
        return str(error)
    except Exception as error:  # such as a value that contains itself
        return f"host {host.name}: its data cannot be read ({error!r})"
    return None


def selected(arguments: Sequence[str]) -> tuple[Inventory, list[Host]]:
    """Return the inventory of a command line without `problems`, and the hosts that it chooses."""
    options = _parse(arguments) or {}
    inventory = _load(options)
    if isinstance(inventory, str):
        raise PyinfraError(inventory)
    return inventory, _chosen(inventory, options)


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


# --- the inventory


def _load(options: Mapping[str, Any]) -> Inventory | str:
    """Return the inventory of pyinfra's options, or why it cannot be used; it holds a host."""
    name = str(options.get("inventory"))
    if Path(name).name in _NOT_INVENTORIES:
        return f"{name} is no inventory, which comes first: pyinfra INVENTORY deploy.py"
    folders = tuple(options.get("group_data") or ())
    pairs = (item.split("=", 1) for item in options.get("data") or ())
    try:
        if Path(name).is_file() and (wrong := next(_wrong_groups(name), None)):
            return f"{name}: group {wrong}"
        inventory: Inventory = make_inventory(
            name,
            cwd=str(Path.cwd()),
            override_data={key: parse_cli_arg(value) for key, value in pairs},
            group_data_directories=folders,
        )
    except Exception as error:  # whatever the file does, and pyinfra with it
        cause = getattr(error, "exception", error)  # without the traceback through pyinfra
        if isinstance(cause, PyinfraError):
            return str(cause)
        return (
            f"{name} is not an inventory ({type(cause).__name__}: {cause}); it is a Python file"
            f" with lists of {_ENTRY}, such as inventories/lab.py"
        )
    if len(inventory):
        return inventory
    if Path(name).exists():
        return f'{name} holds no host: it needs a list, such as `gpu = ["ws1.example"]`'
    there = ", ".join(sorted(map(str, Path("inventories").glob("*.py")))) or "none"
    return f"{name} is neither an inventory file nor a host that resolves; there is: {there}"


def _chosen(inventory: Inventory, options: Mapping[str, Any]) -> list[Host]:
    """Return the hosts that ``--limit`` and ``--exclude`` leave, by pyinfra's rules."""
    limited = _meant(inventory, options.get("limit") or ["*"])
    excluded = _meant(inventory, options.get("exclude") or ())
    return [host for host in inventory if host in limited and host not in excluded]


def _meant(inventory: Inventory, patterns: Iterable[str]) -> list[Host]:
    found: list[Host] = []
    for each in patterns:
        if each in inventory.groups:
            found += inventory.get_group(each)
        else:
            found += [host for host in inventory if fnmatch(host.name, each)]
    return found


def _wrong_groups(file: str) -> Iterator[str]:
    """Yield what pyinfra would pass over, or read otherwise than it is written."""
    known: dict[str, dict[str, Any]] = {}
    for name, value in exec_file(file, return_locals=True).items():
        if name.startswith("_") or not isinstance(value, list | tuple | AbstractSet | Iterator):
            continue
        group = value if isinstance(value, tuple) and len(value) == 2 else (value, {})
        try:
            hosts, _ = _GROUP.validate_python(group, strict=True)
        except ValidationError as error:
            place = error.errors()[0]["loc"]
            entry = f", entry {int(place[1]) + 1}," if place[:1] == (0,) and place[1:] else ""
            yield (
                f"{name}{entry} has to be a list of {_ENTRY} each, or (list, data); a variable that"
                " is no group begins with an underscore"
            )
            continue
        for host, data in ((each, {}) if isinstance(each, str) else each for each in hosts):
            before = known.setdefault(host, {})
            if differing := [key for key in data if before.get(key, data[key]) != data[key]]:
                names = ", ".join(differing[:3])
                yield f"{name}: {host} is declared twice, and {names} differs: declare it once"
            before.update(data)


_TABLES = ("--> Detected changes:", "--> Results:")
_NOTHING = re.compile(r"\[[^\]]+\]\s+(Connected|No changes|Skipped|Ready: .*\.py)")


class Folded(logging.Filter):
    """Drops pyinfra's lines of operations that change nothing, for which it has no option, and its
    tables where this run has one of ours. What is not recognised passes.
    """

    _header: logging.LogRecord | None = None
    _in_table = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a line is shown now; an operation's name is shown before its first one."""
        text = without_escapes(record.getMessage())
        if text.startswith("--> "):
            self._header = record if text.startswith("--> Starting ") else None
            begun = ctx_state.isset() and state.initialised  # type: ignore[no-untyped-call]
            self._in_table = text.startswith(_TABLES) and begun and journal.current() is not None
            return not (self._header or self._in_table)
        if record.levelno == logging.INFO and (self._in_table or _NOTHING.fullmatch(text)):
            return False
        if self._header is not None:
            header, self._header = self._header, None
            logger.callHandlers(header)
        return True
