"""The groups of an inventory file, checked before pyinfra takes them apart.

pyinfra passes over a variable that it cannot read as a group of hosts, with a warning that is lost
in a run's output: a malformed entry would take its whole group out of a deploy, unseen. Of a host
that is declared twice the last value of a key counts. Nothing of a host's data is shown, which may
hold secrets.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import GeneratorType
from typing import Any

from pyinfra_cli.util import exec_file

from pyinfra_gpu.errors import shown
from pyinfra_gpu.spec import KEYS

_ENTRY = 'a name or (name, {"key": value})'
_HELPER = "a variable that is no group begins with an underscore"


def wrong_group(file: str, group_data: tuple[str, ...] = ()) -> str | None:
    """Return what pyinfra would read otherwise than it is written, a sentence; None if nothing.

    + file: of the inventory; raises what it raises
    + group_data: further folders of it
    """
    folders = [Path("group_data"), Path(file).parent / "group_data", *map(Path, group_data)]
    with_data = {"all"} | {each.stem for folder in folders for each in folder.glob("*.py")}
    said: dict[str, tuple[str, dict[str, Any]]] = {}
    nodes = ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"), file))
    imports = (each.names for each in nodes if isinstance(each, ast.Import | ast.ImportFrom))
    imported = {each.asname or each.name for names in imports for each in names}
    for name, value in exec_file(file, return_locals=True).items():
        # Like pyinfra, which takes no name that was imported for a group.
        own = not name.startswith("_") and name not in imported
        if own and (fault := _fault(name, value, with_data, said)):
            return f"{file}: group {name}{fault}"
    return None


def _fault(
    name: str, value: Any, with_data: set[str], said: dict[str, tuple[str, dict[str, Any]]]
) -> str | None:
    if not isinstance(value, list | tuple):
        if not _meant_as_group(name, value, with_data):
            return None
        return f" is a {type(value).__name__}, and has to be a list of {_ENTRY} each; {_HELPER}"
    entries = value
    if isinstance(value, tuple):
        match value:
            case ([*_] as entries, dict()):
                pass
            case _:
                return f" is a tuple that is not (hosts, data), hosts a list of {_ENTRY} each"
    for place, entry in enumerate(entries, 1):
        if fault := _wrong_entry(entry) or _declared_twice(name, entry, said):
            return f", entry {place}{fault}"
    return None


def _wrong_entry(entry: Any) -> str | None:
    name, *rest = entry if isinstance(entry, list | tuple) and entry else (entry,)
    if name == "":
        return " is an empty name: name the host, or remove it"
    if isinstance(entry, str):
        return None
    if isinstance(entry, tuple) and isinstance(name, str) and [*map(type, rest)] == [dict]:
        return None
    of = f" of {shown('', name)}" if isinstance(name, str) else ""
    with_ = f" with {' and '.join(type(each).__name__ for each in rest)}" if rest else ""
    return f" is a {type(entry).__name__}{of}{with_}, and has to be {_ENTRY}; {_HELPER}"


def _meant_as_group(name: str, value: Any, with_data: set[str]) -> bool:
    """Tell whether a variable that is no list was meant as one: constants stand there as well."""
    if isinstance(value, GeneratorType | map | filter | zip):
        return True
    if isinstance(value, AbstractSet):
        return bool(value) and all(isinstance(each, str | tuple) for each in value)
    if not isinstance(value, Mapping):
        return isinstance(value, str) and name in with_data
    keys = KEYS
    hosts_data = value and all(isinstance(each, Mapping) for each in value.values())
    known = any(key in keys or str(key).startswith(("ssh_", "_")) for key in value)
    return name in with_data or bool(hosts_data and not known)


def _declared_twice(
    group: str, entry: Any, said: dict[str, tuple[str, dict[str, Any]]]
) -> str | None:
    """Say where a host was declared before, and a key of its data otherwise."""
    if isinstance(entry, str):
        return None
    name, data = entry
    before, values = said.setdefault(name, (group, {}))
    differing = [str(key) for key in data if key in values and values[key] != data[key]]
    values.update(data)
    if not differing:
        return None
    return (
        f": host {shown('', name)} is declared twice, and {', '.join(differing[:3])} differs from"
        f" what group {before} says: declare it once"
    )
