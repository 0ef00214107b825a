"""An inventory as pyinfra makes it, or one sentence that says what is wrong with it.

pyinfra passes over a variable that it cannot read as a group of hosts, with a warning that is lost
in a run's output: a malformed entry would take its whole group out of a deploy, unseen. Of a host
that is declared twice the last value of a key counts. Nothing of a host's data is shown, which may
hold secrets.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from fnmatch import fnmatch
from pathlib import Path
from traceback import extract_tb
from types import GeneratorType
from typing import Any

from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra_cli.exceptions import UnexpectedExternalError
from pyinfra_cli.inventory import make_inventory
from pyinfra_cli.util import exec_file, parse_cli_arg

from pyinfra_gpu.engine.ending import Ended
from pyinfra_gpu.errors import shown
from pyinfra_gpu.spec import KEYS

_ENTRY = 'a name or (name, {"key": value})'
_HELPER = "a variable that is no group begins with an underscore"
_PYINFRAS_OWN = ("config.py", "deploy.py")
"""Beside which inventories may lie, and which are none."""

_Said = dict[str, tuple[str, dict[str, Any]]]
"""Host -> the group in which it was declared first, and its data by now."""


def load(options: Mapping[str, Any]) -> Inventory | str:
    """Return the inventory of pyinfra's options, or why it cannot be used; it holds a host."""
    name = str(options.get("inventory"))
    if Path(name).name in _PYINFRAS_OWN:
        return f"{name} is no inventory, which comes first: pyinfra INVENTORY deploy.py"
    folders = tuple(options.get("group_data") or ())
    pairs = (item.split("=", 1) for item in options.get("data") or ())
    try:
        if Path(name).is_file() and (wrong := _wrong_group(name, folders)):
            return wrong
        inventory: Inventory = make_inventory(
            name,
            cwd=str(Path.cwd()),
            override_data={key: parse_cli_arg(value) for key, value in pairs},
            group_data_directories=folders,
        )
    except PyinfraError as error:
        return str(error)
    except SyntaxError as error:
        return f"{error.filename} line {error.lineno}: {error.msg}"
    except UnexpectedExternalError as error:  # without the traceback through pyinfra
        cause = error.exception
        lines = [f.lineno for f in extract_tb(cause.__traceback__) if f.filename == error.filename]
        where = f" line {lines[-1]}" if lines else ""
        hint = "; is a comma missing between two hosts?" if "not callable" in str(cause) else ""
        return f"{error.filename}{where}: {type(cause).__name__}: {cause}{hint}"
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
    return inventory if len(inventory) else _nothing_in(name)


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


def chosen(inventory: Inventory, options: Mapping[str, Any]) -> list[Host]:
    """Return the hosts that ``--limit`` and ``--exclude`` leave, by pyinfra's rules."""
    limit = options.get("limit") or ()
    exclude = options.get("exclude") or ()
    return [
        host
        for host in inventory
        if (not limit or any(_means(inventory, each, host) for each in limit))
        and not any(_means(inventory, each, host) for each in exclude)
    ]


def means_somebody(inventory: Inventory, pattern: str) -> bool:
    """Tell whether a word of ``--limit`` is a group, or means a host by its name or a pattern."""
    return pattern in inventory.groups or any(_means(inventory, pattern, x) for x in inventory)


def _means(inventory: Inventory, pattern: str, host: Host) -> bool:
    if pattern in inventory.groups:
        return host in inventory.get_group(pattern)
    return fnmatch(host.name, pattern)


# --- groups


def _wrong_group(file: str, group_data: Sequence[str]) -> str | None:
    """Return what pyinfra would read otherwise than it is written, a sentence; None if nothing."""
    folders = [Path("group_data"), Path(file).parent / "group_data", *map(Path, group_data)]
    with_data = {"all"} | {each.stem for folder in folders for each in folder.glob("*.py")}
    nodes = ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"), file))
    imports = (each.names for each in nodes if isinstance(each, ast.Import | ast.ImportFrom))
    imported = {each.asname or each.name for names in imports for each in names}
    said: _Said = {}
    for name, value in exec_file(file, return_locals=True).items():
        # Like pyinfra, which takes no name that was imported for a group.
        own = not name.startswith("_") and name not in imported
        if own and (fault := _fault(name, value, with_data, said)):
            return f"{file}: group {name}{fault}"
    return None


def _fault(name: str, value: Any, with_data: set[str], said: _Said) -> str | None:
    hosts = value
    if isinstance(value, tuple):
        if [type(each) for each in value] != [list, dict]:
            return f" is a tuple that is not (hosts, data), hosts a list of {_ENTRY} each"
        hosts = value[0]
    elif not isinstance(value, list):
        if not _meant_as_group(name, value, with_data):
            return None
        return f" is a {type(value).__name__}, and has to be a list of {_ENTRY} each; {_HELPER}"
    for place, entry in enumerate(hosts, 1):
        if fault := _wrong_entry(name, entry, said):
            return f", entry {place}{fault}"
    return None


def _wrong_entry(group: str, entry: Any, said: _Said) -> str | None:
    host, *rest = entry if isinstance(entry, list | tuple) and entry else (entry,)
    if host == "":
        return " is an empty name: name the host, or remove it"
    if isinstance(entry, str):
        return None
    right = isinstance(entry, tuple) and isinstance(host, str) and [*map(type, rest)] == [dict]
    if not right:
        of = f" of {shown('', host)}" if isinstance(host, str) else ""
        with_ = f" with {' and '.join(type(each).__name__ for each in rest)}" if rest else ""
        return f" is a {type(entry).__name__}{of}{with_}, and has to be {_ENTRY}; {_HELPER}"
    before, values = said.setdefault(host, (group, {}))
    differing = [str(key) for key in rest[0] if key in values and values[key] != rest[0][key]]
    values.update(rest[0])
    if not differing:
        return None
    return (
        f": host {shown('', host)} is declared twice, and {', '.join(differing[:3])} differs from"
        f" what group {before} says: declare it once"
    )


def _meant_as_group(name: str, value: Any, with_data: set[str]) -> bool:
    """Tell whether a variable that is no list was meant as one: constants stand there as well."""
    if isinstance(value, Mapping):
        hosts = value and all(isinstance(each, Mapping) for each in value.values())
        return name in with_data or bool(hosts and not set(KEYS) & value.keys())
    if isinstance(value, AbstractSet):
        return bool(value) and all(isinstance(each, str | tuple) for each in value)
    is_text = isinstance(value, str) and name in with_data
    return is_text or isinstance(value, GeneratorType | map | filter | zip)
