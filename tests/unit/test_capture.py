"""Asking a host in the middle of an operation: what it said, and what it means when it cannot."""

from __future__ import annotations

from typing import Any

import gevent  # type: ignore[import-untyped]
import pytest
from pyinfra.api import Config
from pyinfra.connectors.util import CommandOutput, OutputLine

from pyinfra_gpu.engine import ask as capture


class State:
    config = Config()
    print_output = print_input = False


class Host:
    def __init__(self, result: tuple[bool, CommandOutput] | Exception, lasts: float = 0) -> None:
        self.result, self.lasts = result, lasts
        self.current_op_global_arguments = {"_sudo": True, "_sudo_password": "x", "name": "op"}
        self.arguments: dict[str, Any] = {}
        self.logged: list[str] = []
        self.connector_data: dict[str, Any] = {}
        self.connector = object()
        self.current_deploy_kwargs: dict[str, Any] = {}
        self.data: dict[str, Any] = {}

    def run_shell_command(self, command: Any, **arguments: Any) -> tuple[bool, CommandOutput]:
        self.arguments = arguments
        gevent.sleep(self.lasts)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def log(self, text: str) -> None:
        self.logged.append(text)


def ask(host: Host, run_as: dict[str, Any] | None = None, **arguments: Any) -> capture.Answer:
    arguments = {"seconds": 30.0, **arguments}
    return capture.ask(State(), host, "true", run_as or {}, **arguments)  # type: ignore[arg-type]


def test_both_channels_are_kept_in_order_and_apart() -> None:
    lines = [OutputLine("stderr", "W: x"), OutputLine("stdout", "a"), OutputLine("stdout", "b")]
    host = Host((True, CommandOutput(lines)))
    answer = ask(host)
    assert answer == capture.Answer(ok=True, stdout=("a", "b"), lines=("W: x", "a", "b"))
    assert host.logged == []


@pytest.mark.parametrize("error", [OSError("reset by peer"), TimeoutError("not within 30 s")])
def test_what_keeps_a_host_from_answering_is_an_answer_that_is_not_ok(error: Exception) -> None:
    answer = ask(Host(error))
    assert (answer.ok, answer.late) == (False, isinstance(error, TimeoutError))
    assert answer.lost is not answer.late
    assert str(error) in answer.lines[0]


def test_as_whom_it_runs_is_said_by_the_caller_and_the_password_by_pyinfra() -> None:
    host = Host((True, CommandOutput([])))
    ask(host, {"_sudo": False}, seconds=10)
    assert host.arguments["_sudo"] is False
    assert host.arguments["_sudo_password"] == "x"
    assert host.arguments["_timeout"] == 10
    assert "name" not in host.arguments


def test_a_long_command_is_told_to_be_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "_TOLD_S", 0.02)
    host = Host((True, CommandOutput([])), lasts=0.2)
    ask(host, what="install it")
    assert host.logged[0] == "install it ..."
    assert len(host.logged) > 2
    told = len(host.logged)
    gevent.sleep(0.1)
    assert len(host.logged) == told
