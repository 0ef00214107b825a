"""What pyinfra spends on each operation of each host, without what it need not do for it.

pyinfra 3.10, for each operation of each host,

* lists its own call stack with `inspect`, which looks up the source of every frame, to read numbers
  of lines,
* evaluates the types of the global arguments, which never change,
* merges the data of all the host's groups anew for each of some forty global arguments;

and for each host it searches all installed distributions for connectors. That was most of what a
host without work cost the controller. Here are functions of the same result;
`tests/fake/test_overhead.py` holds that they are.

At its end Python looks through all that a program has for garbage, more than once, which is an
eighth of a second where pyinfra is imported. It is told that nothing is: the process ends anyway.
"""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Mapping
from copy import copy
from functools import cache
from importlib import import_module
from types import FrameType
from typing import Any

import pyinfra
from pyinfra.api import arguments, connectors, facts, inventory, util
from pyinfra.api.host import Host
from pyinfra.api.state import State

# `pyinfra.api.operation`, as a name, is the decorator out of this module; so is the other.
_OPERATION = import_module("pyinfra.api.operation")
_DEPLOY = import_module("pyinfra.api.deploy")
_argument_types = cache(arguments.all_global_arguments)
_connectors = cache(connectors.get_all_connectors)
_pop = arguments.pop_global_arguments


def install() -> None:
    """Have pyinfra use these functions; a second time changes nothing."""
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
    _OPERATION.__dict__["get_operation_order_from_stack"] = operation_order
    for module in (arguments, facts):
        module.__dict__["all_global_arguments"] = global_arguments
    for module in (arguments, facts, _OPERATION, _DEPLOY):
        module.__dict__["pop_global_arguments"] = pop_global_arguments
    for module in (connectors, inventory):
        module.__dict__["get_all_connectors"] = all_connectors


def operation_order(state: State) -> list[int | None]:
    """Return the numbers of the lines through which the deploy came to this operation.

    From the outermost frame of the deploy file inwards, pyinfra's own frames left out; see
    `pyinfra.api.util.get_operation_order_from_stack`.
    """
    frames = _frames(sys._getframe(1))
    names = [frame.f_code.co_filename for frame in frames]
    wanted = state.current_deploy_filename
    # A stack without the deploy file has no lines, as there.
    start = names.index(wanted) if wanted in names else len(names) if wanted else 0
    order: list[int | None] = [state.current_op_file_number] if pyinfra.is_cli else []
    own = util.PYINFRA_INSTALL_DIR
    inner = zip(frames[start:], names[start:], strict=True)
    return order + [frame.f_lineno for frame, name in inner if not name.startswith(own)]


def global_arguments() -> list[tuple[str, type]]:
    """Return all global arguments and their types, see `pyinfra.api.arguments`."""
    return list(_argument_types())


def all_connectors() -> dict[str, Any]:
    """Return the installed connectors by their names, see `pyinfra.api.connectors`."""
    return dict(_connectors())


def pop_global_arguments(
    state: State, host: Host, kwargs: dict[str, Any]
) -> tuple[arguments.AllArguments, list[str]]:
    """Take the global arguments out of those of an operation, see `pyinfra.api.arguments`."""
    return _pop(state, _Merged(host), kwargs)  # type: ignore[arg-type]  # it stands for one


class _Merged:
    """A host whose data were merged once."""

    def __init__(self, host: Host) -> None:
        self._host, self.data = host, _Data(host.data.dict())  # type: ignore[no-untyped-call]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)


class _Data:
    """A host's data as attributes, each a copy, as pyinfra hands them out."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        try:
            return copy(self._values[name])
        except KeyError:
            raise AttributeError(name) from None


def _frames(innermost: FrameType | None) -> list[FrameType]:
    """Return a frame with all that called it, the outermost first."""
    found = []
    while innermost is not None:
        found.append(innermost)
        innermost = innermost.f_back
    return found[::-1]
