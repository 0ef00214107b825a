"""The calls that talk to a host: bounded in time and bytes, and harmless when they come in."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest
from pyinfra.api import Config, Inventory, State
from pyinfra.api.connect import connect_all
from pyinfra.api.host import Host
from pyinfra.context import ctx_state
from test_hostile_host import PROJECT, environment, serving

from pyinfra_gpu.engine import ask as asking
from pyinfra_gpu.engine.deadlines import within


@pytest.fixture
def host() -> Iterator[Host]:
    state = State(Inventory((["@local"], {})), Config())
    connect_all(state)
    (local,) = state.inventory
    with ctx_state.use(state):
        yield local


def run(host: Host, text: str, **arguments: Any) -> tuple[bool, list[str], list[str]]:
    reported = asking.run(host.state, host, text, {}, **{"seconds": 100, **arguments})
    return (
        reported.ok,
        [*reported.stdout],
        [line for line in reported.lines if line not in reported.stdout],
    )


COMMANDS: list[tuple[str, dict[str, Any], tuple[bool, list[str], list[str]]]] = [
    ("echo a; echo b >&2; printf c", {}, (True, ["a", "c"], ["b"])),
    ("exit 3", {}, (False, [], [])),
    ("exit 3", {"_success_exit_codes": [3]}, (True, [], [])),
    ("cat", {}, (True, [], [])),
    ("cat", {"_stdin": "one\ntwo"}, (True, ["one", "two"], [])),
    ("wc -c", {"_stdin": "x" * 200_000}, (True, ["200001"], [])),
    ("true", {"_stdin": "x" * 200_000}, (True, [], [])),
    ('echo "$A"', {"_env": {"A": "x y"}}, (True, ["x y"], [])),
    ("echo done; sleep 60 &", {}, (True, ["done"], [])),
    (r"printf 'a\033]0;x\007\033[2Jb\r\n\377c\n'", {}, (True, ["ab", "\\xffc"], [])),
]


@pytest.mark.parametrize(("text", "arguments", "reported"), COMMANDS)
def test_a_command_is_run_as_pyinfra_runs_it_and_its_lines_do_nothing_to_a_terminal(
    host: Host,
    text: str,
    arguments: dict[str, Any],
    reported: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "SETTLE_S", 1.0)
    shown: list[str] = []
    monkeypatch.setattr("pyinfra.connectors.util.echo", lambda text, err: shown.append(text))
    assert run(host, text, show=True, **arguments) == reported
    assert "\x07" not in "".join(shown)


def test_a_command_that_does_not_end_is_given_up(host: Host) -> None:
    with pytest.raises(TimeoutError, match="it did not answer within 1 s"):
        run(host, "sleep 60", seconds=1)


def test_a_command_that_prints_more_than_it_may_is_given_up(host: Host) -> None:
    for text in ("yes", "yes | tr -d '\\n'", "yes >&2"):
        with pytest.raises(asking.TooMuchError, match="it sent more than 64 KiB"):
            run(host, text, most=1 << 16)


def answer(host: Host, text: str = "true", **arguments: Any) -> asking.Answer:
    return asking.ask(host.state, host, text, {}, **{"seconds": 30, **arguments})


def test_what_a_command_said_is_kept_in_order_and_apart(host: Host) -> None:
    reported = answer(host, "echo a; sleep 0.1; echo W: x >&2; sleep 0.1; echo b")
    assert (reported.ok, reported.stdout, reported.lines) == (True, ("a", "b"), ("a", "W: x", "b"))


@pytest.mark.parametrize("error", [OSError("reset by peer"), TimeoutError("not within 30 s")])
def test_what_keeps_a_host_from_answering_is_an_answer_that_is_not_ok(
    host: Host, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(asking, "run", fails)
    reported = answer(host)
    assert not reported.ok
    assert reported.lines == (reported.lost,)
    assert str(error) in reported.lost


def test_a_long_command_is_told_to_be_alive(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[str] = []
    monkeypatch.setattr(host, "log", reported.append)
    monkeypatch.setattr(asking, "_TOLD_S", 0.1)
    answer(host, "sleep 1")
    assert reported == []
    answer(host, "sleep 1", what="install it")
    assert reported[0] == "install it ..."
    assert len(reported) > 2
    said = len(reported)
    gevent.sleep(0.3)
    assert len(reported) == said


def test_as_whom_it_runs_is_said_by_the_caller_and_the_password_by_pyinfra(host: Host) -> None:
    host.current_op_global_arguments = {"_sudo": True, "_sudo_password": "x"}  # type: ignore[typeddict-item]
    chosen = asking._arguments(host.state, host, {"_sudo": False})
    assert (chosen["_sudo"], chosen["_sudo_password"]) == (False, "x")


def test_a_program_that_lasts_begins_in_time_or_is_given_up(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asking.start(host.state, host, "echo here; cat", {}, seconds=20, most=1000)
    assert begun
    lines = begun.lines()
    assert next(lines) == "here"
    assert begun.say(b"x\n")
    assert next(lines) == "x"
    begun.close()
    assert not begun.say(b"x\n")
    monkeypatch.setattr(asking, "Program", lambda *_, **__: gevent.sleep(60))
    with pytest.raises(TimeoutError, match="no program began within"):
        asking.start(host.state, host, "cat", {}, seconds=0.5, most=1000)


def test_time_in_which_a_person_is_asked_does_not_count() -> None:
    """pyinfra asks by a call that stops all hosts' work; a sleep does the same."""
    program = (
        "import time; from pyinfra_gpu.engine.deadlines import within; import gevent\n"
        "with within(2, 'x'):\n    time.sleep(3); gevent.sleep(0.2)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=PROJECT, check=True, timeout=60)
    with pytest.raises(TimeoutError, match="x within"), within(0.4, "x"):
        gevent.sleep(5)
    with pytest.raises(gevent.Timeout), gevent.Timeout(0.1), within(5, "x"):  # somebody else's
        gevent.sleep(5)


REMOTE = """
import json, sys
import pyinfra_cli
from pyinfra.api import Config, Inventory, State, StringCommand
from pyinfra.api.connect import connect_all
from pyinfra_gpu.engine import ask as asking
from pyinfra_gpu.engine.ask import ask
hosts = [tuple(each) for each in json.load(open(sys.argv[1]))]
state = State(Inventory((hosts, {})), Config())
connect_all(state)
told = {}
def one(host):
    answer = ask(state, host, "true", {}, seconds=30)
    told[host.name] = [answer.ok, *answer.lines]
state.pool.map(one, list(state.inventory))
print(json.dumps([told[name] for name, _ in hosts]))
"""
# A host with much to do sends what it has to say seconds after the end; a daemon holds on for ever.
KINDS = {
    "holds on": [True, "done"],
    "late": [True, "done", "late"],
    "never takes a command": [False],
}


def test_what_comes_late_is_heard_and_what_never_comes_is_given_up(tmp_path: Path) -> None:
    known = {"ssh_hostname": "127.0.0.1", "ssh_user": "u", "ssh_password": "x"}
    known["ssh_known_hosts_file"] = str(tmp_path / "known_hosts")
    with serving(tmp_path, tuple(KINDS)) as ports:
        hosts = [(f"host{port}", {**known, "ssh_port": port}) for port in ports]
        (tmp_path / "hosts.json").write_text(json.dumps(hosts), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-c", REMOTE, str(tmp_path / "hosts.json")],
            cwd=PROJECT,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    for (kind, words), said in zip(KINDS.items(), json.loads(done.stdout), strict=True):
        assert said[: len(words)] == words, kind
