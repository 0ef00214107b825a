"""What an inventory file declares, looked at before pyinfra takes it apart.

pyinfra 3.10 passes over a variable that it cannot read as a group of hosts, with a warning that is
lost in a run's output: a malformed entry would take its whole group out of a deploy, unseen. Of a
host that is declared twice the last value of a key counts. Both are said here, for all hosts that
are concerned; nothing of a host's data is shown, which may hold secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from types import GeneratorType
from typing import Any

from pyinfra.api.exceptions import PyinfraError
from pyinfra_cli import inventory as pyinfra_inventory

from pyinfra_gpu.errors import shown
from pyinfra_gpu.spec import allowed_keys

_FORM = 'a list of names or (name, {"key": value}), as in inventories/lab.py'
_HELPER = "a variable that is no group begins with an underscore"


class GroupError(PyinfraError):
    """A group that is none: one sentence."""


@contextmanager
def looked_at(file: str, group_data: tuple[str, ...] = ()) -> Iterator[None]:
    """Have the groups of an inventory file looked at while pyinfra reads it.

    + group_data: further folders of it

    Inside, GroupError is raised for a file that pyinfra would read otherwise than it is written.
    """
    known = _groups_with_data(file, group_data)
    said: dict[str, tuple[str, dict[str, Any]]] = {}
    pyinfras: Callable[[str, Any], bool] = pyinfra_inventory._is_inventory_group

    def is_group(name: str, value: Any) -> bool:
        if name.startswith("_"):
            return False
        where = f"{file}: group {name}"
        if not isinstance(value, list | tuple):
            if _meant_as_group(name, value, known):
                kind = type(value).__name__
                raise GroupError(f"{where} is a {kind}, and has to be {_FORM}; {_HELPER}")
            return False
        for place, entry in enumerate(_entries(where, value), 1):
            _look_at(f"{where}, entry {place}", entry)
            _compare(where, entry, said)
        return pyinfras(name, value)

    pyinfra_inventory._is_inventory_group = is_group
    try:
        yield
    finally:
        pyinfra_inventory._is_inventory_group = pyinfras


def _groups_with_data(file: str, further: tuple[str, ...]) -> set[str]:
    folders = [Path("group_data"), Path(file).parent / "group_data", *map(Path, further)]
    return {"all"} | {each.stem for folder in folders for each in folder.glob("*.py")}


def _meant_as_group(name: str, value: Any, known: set[str]) -> bool:
    """Tell whether a variable that is no list was meant as one: constants stand there as well."""
    if isinstance(value, GeneratorType | map | filter | zip):
        return True
    if isinstance(value, AbstractSet):
        return bool(value) and all(isinstance(each, str | tuple) for each in value)
    if not isinstance(value, str | Mapping):
        return False
    if name in known:
        return True
    if isinstance(value, str) or not value:
        return False
    keys = allowed_keys()
    return all(isinstance(each, Mapping) for each in value.values()) and not any(
        key in keys or str(key).startswith(("ssh_", "_")) for key in value
    )


def _entries(where: str, value: list[Any] | tuple[Any, ...]) -> list[Any] | tuple[Any, ...]:
    if isinstance(value, list):
        return value
    if len(value) == 2 and isinstance(value[0], list | tuple) and isinstance(value[1], dict):
        return value[0]
    raise GroupError(f"{where} is a tuple that is not (hosts, data); it has to be {_FORM}")


def _look_at(where: str, entry: Any) -> None:
    """Raise GroupError where an entry is neither a name nor a name with data."""
    if isinstance(entry, str):
        name: Any = entry
    elif not isinstance(entry, tuple):
        begins = f" that begins with {shown('', entry[0])}" if _names_somebody(entry) else ""
        kind = type(entry).__name__
        raise GroupError(
            f'{where} is a {kind}{begins}, and no name or (name, {{"key": value}}); {_HELPER}'
        )
    elif not _names_somebody(entry):
        raise GroupError(
            f'{where} is a tuple without a name; it has to be (name, {{"key": value}})'
        )
    else:
        name = entry[0]
        if len(entry) != 2 or not isinstance(entry[1], dict):
            what = type(entry[1]).__name__ if len(entry) == 2 else f"{len(entry) - 1} values"
            raise GroupError(
                f'{where}: with host {shown("", name)} stands {what}; its data has to be {{"key":'
                " value}"
            )
    if not name:
        raise GroupError(f"{where} is an empty name: name the host, or remove it")


def _names_somebody(entry: Any) -> bool:
    return isinstance(entry, list | tuple) and bool(entry) and isinstance(entry[0], str)


def _compare(where: str, entry: Any, said: dict[str, tuple[str, dict[str, Any]]]) -> None:
    """Raise GroupError where a host was declared before, and a key of its data otherwise."""
    if isinstance(entry, str):
        return
    name, data = entry
    before, values = said.setdefault(name, (where, {}))
    differing = [str(key) for key in data if key in values and not _same(values[key], data[key])]
    if differing:
        raise GroupError(
            f"{where}: host {shown('', name)} is declared twice, and {', '.join(differing[:3])}"
            f" differs from what {before.rpartition(': ')[2]} says: declare it once"
        )
    values.update(data)


def _same(one: Any, other: Any) -> bool:
    try:
        return one is other or bool(one == other)
    except Exception:  # what cannot be compared is not the same
        return False
