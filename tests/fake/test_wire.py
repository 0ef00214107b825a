"""The calls that talk to a host: bounded in time and bytes, and harmless when they come in."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
import pytest
from pyinfra.api import Config, Inventory, State, StringCommand
from pyinfra.api.connect import connect_all
from pyinfra.api.host import Host
from pyinfra.context import ctx_state
from test_hostile_host import PROJECT, serving

from pyinfra_gpu.engine import wire


@pytest.fixture
def host() -> Iterator[Host]:
    state = State(Inventory((["@local"], {})), Config())
    connect_all(state)
    (local,) = state.inventory
    wire.guard(local)
    with ctx_state.use(state):
        yield local


def run(host: Host, text: str, **arguments: Any) -> tuple[bool, list[str], list[str]]:
    ok, output = host.run_shell_command(StringCommand(text), **arguments)
    return ok, output.stdout_lines, output.stderr_lines


def test_a_command_is_run_as_pyinfra_runs_it(host: Host) -> None:
    assert run(host, "echo a; echo b >&2; printf c") == (True, ["a", "c"], ["b"])
    assert run(host, "exit 3") == (False, [], [])
    assert run(host, "exit 3", _success_exit_codes=[3])[0]
    assert run(host, "cat", _stdin="one\ntwo") == (True, ["one", "two"], [])
    assert run(host, "cat", _stdin=["one", "two\n"]) == (True, ["one", "two"], [])
    assert run(host, 'echo "$A"', _env={"A": "x y"}) == (True, ["x y"], [])
    assert run(host, "true", _stdin="x" * 200_000) == (True, [], [])


def test_to_guard_a_host_twice_changes_nothing(host: Host) -> None:
    guarded = host.connector.run_shell_command
    wire.guard(host)
    assert host.connector.run_shell_command is guarded


def test_what_a_host_prints_does_nothing_to_a_terminal(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("pyinfra.connectors.util.echo", lambda text, err: shown.append(text))
    text = r"printf 'a\033]0;x\007\033[2Jb\r\n\377c\n'"
    assert run(host, text, print_output=True) == (True, ["ab", "\\xffc"], [])
    assert [line.rpartition(" ")[2] for line in shown] == ["ab", "\\xffc"]


def test_a_command_that_does_not_end_is_given_up(host: Host) -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="it did not answer within 1 s"):
        run(host, "sleep 60", _timeout=1)
    assert time.monotonic() - began < 50


def test_a_call_without_a_deadline_of_its_own_has_one(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire.deadlines, "PLAIN", 1.0)
    with pytest.raises(TimeoutError):
        run(host, "sleep 60")


def test_a_program_that_lasts_begins_in_time_or_is_given_up(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = wire.start(host, "echo here; cat", seconds=20)
    assert begun
    assert begun.line(20) == "here"
    assert begun.say(b"x\n")
    assert begun.line(20) == "x"
    begun.close()
    monkeypatch.setattr(wire.transport, "start", lambda *_: gevent.sleep(60))
    with pytest.raises(TimeoutError, match="no program began within"):
        wire.start(host, "cat", seconds=0.5)


def test_time_in_which_a_person_is_asked_does_not_count() -> None:
    """pyinfra asks by a call that stops all hosts' work; a sleep does the same."""
    program = (
        "import time; from pyinfra_gpu.engine.wire import within; import gevent\n"
        "with within(2, 'x'):\n    time.sleep(3); gevent.sleep(0.2)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=PROJECT, check=True, timeout=60)
    with pytest.raises(TimeoutError, match="x within"), wire.within(0.4, "x"):
        gevent.sleep(5)


def test_a_time_of_somebody_elses_is_not_taken_for_ours() -> None:
    with pytest.raises(gevent.Timeout), gevent.Timeout(0.1), wire.within(5, "x"):
        gevent.sleep(5)


REMOTE = """
import json, sys, time
import pyinfra_cli
from io import BytesIO
from pyinfra.api import Config, Inventory, State, StringCommand
from pyinfra.api.connect import connect_all
from pyinfra_gpu.engine import wire
from pyinfra_gpu.engine.ask import ask
hosts = [tuple(each) for each in json.load(open(sys.argv[1]))]
state = State(Inventory((hosts, {})), Config())
connect_all(state)
told = {}
for host in state.inventory:
    wire.guard(host)
    began = time.monotonic()
    answer = ask(state, host, "true", {}, seconds=float(sys.argv[2]))
    told[host.name] = [answer.ok, answer.lines, time.monotonic() - began]
    try:
        host.put_file(BytesIO(b"x"), "/x", _timeout=2)
    except Exception as error:
        told[host.name].append(type(error).__name__)
print(json.dumps(told))
"""

SILENT = ("never opens a channel", "never takes a command", "never answers", "never ends")


@contextmanager
def data_of(tmp_path: Path, kinds: tuple[str, ...]) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    with serving(tmp_path, kinds) as ports:
        yield [
            (
                f"host{number}",
                {
                    "ssh_hostname": "127.0.0.1",
                    "ssh_port": port,
                    "ssh_user": "u",
                    "ssh_password": "x",
                    "ssh_known_hosts_file": str(tmp_path / "known_hosts"),
                },
            )
            for number, port in enumerate(ports)
        ]


def test_a_server_that_stops_at_any_point_is_given_up_by_every_kind_of_call(
    tmp_path: Path,
) -> None:
    for name, (ok, lines, seconds, *transfer) in told_of(tmp_path, SILENT, 2).items():
        assert not ok, name
        assert lines == ["it did not answer within 2 s"], name
        assert seconds < 60, name
        assert transfer, name


def test_of_a_command_that_has_ended_late_output_counts_and_a_daemon_is_not_waited_for(
    tmp_path: Path,
) -> None:
    """A host with much to do sends it seconds later, and half of an answer is none."""
    holds_on, late = told_of(tmp_path, ("holds on", "late"), 100).values()
    assert holds_on[:2] == [True, ["done"]]
    assert late[:2] == [True, ["done", "late"]]


def told_of(tmp_path: Path, kinds: tuple[str, ...], seconds: int) -> dict[str, Any]:
    """Host of each kind -> whether a command ended well, what it said, how long it took, ..."""
    with data_of(tmp_path, kinds) as hosts:
        (tmp_path / "hosts.json").write_text(json.dumps(hosts), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-c", REMOTE, str(tmp_path / "hosts.json"), str(seconds)],
            cwd=PROJECT,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(PROJECT)},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told
