"""What pyinfra printed and left behind becomes an answer, whatever went wrong on the way."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from check_reports import host, unreachable
from pyinfra.api.host import Host

from pyinfra_gpu import cli
from pyinfra_gpu.engine.look import COMPARE_S, Unanswered
from pyinfra_gpu.report.check import cli as check_cli
from pyinfra_gpu.report.check import running
from pyinfra_gpu.report.check.answer import Answer, HostAnswer
from pyinfra_gpu.report.check.running import Request, run

PROJECT = Path(__file__).resolve().parents[2]


def answer(*hosts: HostAnswer, **changes: Any) -> Answer:
    values = {"inventory": "inventories/lab.py", "checked": "2026-11-21T11:00:03Z", "seconds": 3.21}
    return Answer(**{**values, "hosts": hosts, **changes})


def test_outside_the_projects_folder_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = run(Request(inventory="inventories/lab.py"))
    assert told.exit_code == 1
    assert "deploy.py" in told.reasons[0]


# What a user types, in the project's folder, with pyinfra itself and no host that answers.


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(PROJECT)
    return tmp_path


def test_a_host_whose_sudo_asks_for_a_password_is_told_and_nobody_is_asked(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sudo = home / "sudo"
    sudo.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2; exit 1\n")
    sudo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}:{os.environ['PATH']}")
    fleet = home / "fleet.py"
    data = {"stack": "cpu-torch2.13", "prefix": str(home / "gpu"), "gpu_count": 0}
    fleet.write_text(f"gpu = [('@local', {data})]\n")
    assert cli.main(["check", str(fleet)]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "could not be looked at: sudo asks for a password there" in text
    assert "--same-sudo-password" in text


def inventory(home: Path) -> str:
    path = home / "fleet.py"
    data = {"ssh_hostname": "127.0.0.1", "ssh_port": free_port(), "stack": "cpu-torch2.13"}
    path.write_text(f"gpu = [('dead1', {data})]\n")
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "inventories/lob.py"], "did you mean inventories/lab.py?"),
        (["check", "FLEET", "--limit", "nobody"], "--limit nobody names no host of"),
        (
            ["check", "FLEET", "--limit", "dead1", "--limit", "dead2"],
            "--limit dead2 names no host of",
        ),
        (["check", "FLEET", "--limit", "dead1", "--exclude", "gpu"], "leaves no host"),
        (["check", "FLEET", "--data", "stack=nosuch"], "nosuch"),
        (["check", "FLEET", "--data", "nonsense"], "KEY=VALUE"),
        (["check", "FLEET"], "could not be reached: Unable to connect to port"),
    ],
)
def test_what_cannot_be_told_is_exit_code_1_and_a_sentence(
    arguments: list[str], words: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = inventory(home)
    assert cli.main([fleet if each == "FLEET" else each for each in arguments]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert words in text
    assert "Traceback" not in text


def test_json_is_one_document_even_when_nothing_can_be_told(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", "inventories/lob.py", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["schema_version"], told["verdict"], told["exit_code"]) == (1, "unknown", 1)
    assert (told["hosts"], len(told["reasons"])) == ({}, 1)


@pytest.mark.parametrize(
    "arguments", [["check"], ["check", "x", "--nonsense"], ["report", "x"], []]
)
def test_wrong_usage_is_1_and_never_drift(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 1


def test_a_check_that_is_ended_leaves_no_connection(home: Path) -> None:
    ending = signal.SIGTERM
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never says a word
        fleet = home / "fleet.py"
        data = {"ssh_hostname": "127.0.0.1", "ssh_port": silent.getsockname()[1]}
        fleet.write_text(f"gpu = [('slow1', {data})]\n")
        call = f"sys.exit(main(['check', {str(fleet)!r}]))"
        code = f"import sys; from pyinfra_gpu.cli import main; {call}"
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=PROJECT,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        silent.settimeout(30)
        connection, _ = silent.accept()
        os.kill(process.pid, ending)  # to us alone, as `kill` would
        assert process.wait(timeout=20) == 128 + ending
        connection.settimeout(10)
        while connection.recv(1024):  # ends when its sockets are closed
            time.sleep(0)
        connection.close()


def test_a_check_that_is_ended_shows_what_the_others_said(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(request: Request, arrived: running.Arrived) -> Answer:
        arrived(host("gpu1"), ["gpu1", "slow1"])
        raise SystemExit(130)

    monkeypatch.setattr(check_cli, "run", ended)
    with pytest.raises(SystemExit) as code:
        cli.main(["check", "inventories/lab.py"])
    assert code.value.code == 130
    assert capsys.readouterr().out == (
        "gpu1  as declared\n\nended before the other hosts had answered\n"
    )


def test_on_a_terminal_a_line_names_the_hosts_that_have_not_answered(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(request: Request, arrived: running.Arrived) -> Answer:
        hosts = (host("gpu1"), unreachable("slow1"))
        for each in hosts:
            arrived(each, ["gpu1", "slow1"])
        return answer(*hosts)

    monkeypatch.setattr(check_cli, "run", run)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    assert cli.main(["check", "inventories/lab.py", "--json"]) == 1
    output = capsys.readouterr()
    assert json.loads(output.out)["exit_code"] == 1
    assert "1 of 2 hosts have answered; waiting for slow1" in output.err
    assert output.err.rindex("\x1b[?25h") > output.err.rindex("\x1b[?25l")  # the cursor is back
    assert output.err.endswith("\x1b[2K")  # and the line is gone


def test_a_host_that_cannot_be_judged_does_not_change_another_hosts_answer(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = home / "fleet.py"
    data = {"stack": "cpu-torch2.13", "ssh_hostname": "127.0.0.1", "ssh_port": free_port()}
    fleet.write_text(f"gpu = [('odd', {data}), ('dead1', {data})]\n")

    def broken(state: object, host: Host, spec: object, compare_s: int) -> Unanswered:
        assert compare_s == COMPARE_S  # as a deploy: less would call drift what that does not
        if host.name == "odd":
            raise RecursionError("too deep")
        return Unanswered(reason="could not be reached: x", unreachable=True)

    monkeypatch.setattr(running, "answer", broken)
    told = {each.name: each for each in run(Request(inventory=str(fleet))).hosts}
    assert "RecursionError" in str(told["odd"].reason)
    assert told["dead1"].reason == "could not be reached: x"


@pytest.mark.parametrize(
    ("to", "words"), [(">/dev/full", "cannot be written: No space left"), ("| true", "")]
)
def test_a_closed_or_full_output_is_no_traceback(to: str, words: str, tmp_path: Path) -> None:
    code = "import sys; from pyinfra_gpu.cli import main; sys.exit(main(['check', 'nosuch.py']))"
    done = subprocess.run(
        ["bash", "-c", f"{shlex.join([sys.executable, '-c', code])} {to}"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    assert done.returncode == bool(words)
