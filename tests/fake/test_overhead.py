"""What is quicker than in pyinfra itself has the same result."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyinfra
import pytest
from pyinfra.api import Config, Inventory, arguments, inventory, util
from pyinfra.api.state import State

from pyinfra_gpu.engine import overhead

Orders = list[list[int | None]]

DEPLOY = """
def task():
    for _ in range(2):
        ask()

task()
ask()
(lambda: task())()
"""


def state(deploy: str | None, number: int = 3) -> State:
    found = SimpleNamespace(current_deploy_filename=deploy, current_op_file_number=number)
    return cast("State", found)


def both(of: State, found: Orders) -> Callable[[], None]:
    def ask() -> None:
        found.append([util.get_operation_order_from_stack(of), overhead.operation_order(of)])

    return ask


@pytest.mark.parametrize("cli", [True, False])
@pytest.mark.parametrize("known", ["deploy.py", "/elsewhere/deploy.py", None])
@pytest.mark.parametrize("on_disk", [True, False])
def test_an_operation_has_the_place_that_pyinfra_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: bool, known: str | None, on_disk: bool
) -> None:
    monkeypatch.setattr(pyinfra, "is_cli", cli)
    monkeypatch.chdir(tmp_path)
    if on_disk:
        (tmp_path / "deploy.py").write_text(DEPLOY)
    found: Orders = []
    ask = both(state(known), found)
    exec(compile(DEPLOY, "deploy.py", "exec"), {"ask": ask})
    assert len(found) == 5
    for theirs, ours in cast("list[Any]", found):
        assert ours == theirs
    if known == "deploy.py":
        assert cast("list[Any]", found)[0][0][-3:-1] == [6, 4]


def test_the_global_arguments_are_those_of_pyinfra() -> None:
    found = overhead.global_arguments()
    assert dict(found) == arguments.get_type_hints(arguments.AllArguments)
    found.clear()
    assert overhead.global_arguments()


@pytest.mark.parametrize("data", [{}, {"_sudo": True, "_env": {"A": "1"}}, {"_retries": 3}])
@pytest.mark.parametrize(
    "given", [{}, {"_sudo": False, "x": 1}, {"_env": {"B": "2"}, "_timeout": 9}]
)
@pytest.mark.parametrize("deploy", [None, {"_sudo": True, "_shell_executable": "dash"}])
def test_global_arguments_come_from_where_pyinfra_takes_them(
    data: dict[str, Any], given: dict[str, Any], deploy: dict[str, Any] | None
) -> None:
    groups = {"lab": ([], {"_retries": 2, "unrelated": 1})}
    made = State(Inventory(([("@local", data)], {"_umask": "022"}), **groups), Config())
    host = made.inventory.get_host("@local")
    host.current_deploy_kwargs = cast("Any", deploy)
    left_by_theirs, left_by_ours = dict(given), dict(given)
    theirs = overhead._pop(made, host, left_by_theirs)
    ours = overhead.pop_global_arguments(made, host, left_by_ours)
    assert ours == theirs
    assert left_by_ours == left_by_theirs


def test_the_connectors_are_those_of_pyinfra() -> None:
    assert set(overhead.all_connectors()) >= {"ssh", "local", "docker"}
    overhead.all_connectors().clear()
    assert overhead.all_connectors()


def test_pyinfra_uses_them() -> None:
    operation = import_module("pyinfra.api.operation")
    assert operation.get_operation_order_from_stack is overhead.operation_order
    assert arguments.all_global_arguments is overhead.global_arguments
    assert operation.pop_global_arguments is overhead.pop_global_arguments
    assert inventory.get_all_connectors is overhead.all_connectors
