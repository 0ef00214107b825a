"""What pyinfra spends on each operation of each host, without what it need not do for it.

For the place of an operation in the deploy pyinfra 3.10 lists its own call stack with `inspect`,
which looks up the source of every frame, five lines of context included, only to read the number
of the line: half of what an operation without work cost the controller. The types of the global
arguments, which never change, it evaluates anew for every operation and every kind of fact. Both
are replaced by functions of the same result; `tests/fake/test_overhead.py` holds that they are.
docs/upstream/ has the same as a change to pyinfra.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from types import FrameType

import pyinfra
from pyinfra.api import arguments, facts, util
from pyinfra.api.state import State

# `pyinfra.api.operation`, as a name, is the decorator out of this module.
_OPERATION = import_module("pyinfra.api.operation")
_argument_types = cache(arguments.all_global_arguments)


def install() -> None:
    """Have pyinfra use these functions; a second time changes nothing."""
    for module, name, ours in (
        (_OPERATION, "get_operation_order_from_stack", operation_order),
        (arguments, "all_global_arguments", global_arguments),
        (facts, "all_global_arguments", global_arguments),
    ):
        setattr(module, name, ours)


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


def _frames(innermost: FrameType | None) -> list[FrameType]:
    """Return a frame with all that called it, the outermost first."""
    found = []
    while innermost is not None:
        found.append(innermost)
        innermost = innermost.f_back
    return found[::-1]
