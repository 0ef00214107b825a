"""`check`: from the judgement of each stage to a verdict, a screen and an exit code.

No false alarm, no false calm, and nothing of a host that a terminal obeys.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import gevent  # type: ignore[import-untyped]
import pytest
import snapshots
import verdicts
from check_reports import (
    NOTE,
    REPAIR,
    REPORT,
    RESTART,
    SMOKE_OWED,
    STOP,
    UPGRADE,
    finding,
    host,
    stage,
    unreachable,
)
from hostile_texts import CONTROL, HOSTILE
from pyinfra.api.host import Host

from pyinfra_gpu import cli
from pyinfra_gpu.engine.look import Unanswered
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.report.check import running
from pyinfra_gpu.report.check.answer import Answer, HostAnswer, Verdict
from pyinfra_gpu.report.check.cli import render
from pyinfra_gpu.report.check.running import Request, run
from pyinfra_gpu.stages.finding import Id
from pyinfra_gpu.stages.host import StageJudgement

PROJECT = Path(__file__).resolve().parents[2]
HUNG = stage("cuda", unread=("it hung", "x"))


def answer(*hosts: HostAnswer, **changes: Any) -> Answer:
    return Answer(inventory="x", checked="a day", seconds=3.2, hosts=hosts, **changes)


# -- verdicts

VERDICTS: dict[str, tuple[tuple[StageJudgement, ...], Verdict]] = {
    "as declared": ((), "declared"),
    "a stage with nothing to do": ((stage("driver", found=""),), "declared"),
    "only a note": ((stage("smoke", NOTE),), "declared"),
    "a finding to repair": ((stage("libcuda", REPAIR),), "drift"),
    "a finding that is left alone": ((stage("cuda", REPORT),), "drift"),
    "a smoke test that is owed alone": ((SMOKE_OWED,), "drift"),
    "refused beside a note": ((stage("smoke", NOTE, STOP),), "drift"),
    "a restart": ((RESTART,), "restart"),
    "a restart and the test it owes": ((RESTART, SMOKE_OWED), "restart"),
    "a restart and a note": ((RESTART, stage("smoke", NOTE)), "restart"),
    "a restart, a repair and a test": ((RESTART, stage("libcuda", REPAIR), SMOKE_OWED), "drift"),
    "a restart and something left alone": ((RESTART, stage("cuda", REPORT)), "drift"),
    "a restart and a refusal": ((stage("preflight", STOP), RESTART), "drift"),
    "unreadable beside a restart": ((RESTART, HUNG), "unknown"),
    "unreadable beside drift": ((stage("libcuda", REPAIR), HUNG), "unknown"),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_each_state_has_its_verdict(name: str) -> None:
    stages, verdict = VERDICTS[name]
    judged = host("gpu1", *stages)
    assert judged.verdict == verdict
    assert bool(judged.deviations) or verdict == "declared"
    assert judged.reason == ("it hung; x" if verdict == "unknown" else None)


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([], 1),
        (["declared", "declared"], 0),
        (["declared", "restart"], 3),
        (["restart", "drift", "declared"], 2),
        (["drift", "unknown", "restart"], 1),
    ],
)
def test_of_several_hosts_the_worst_decides(found: list[Verdict], code: int) -> None:
    stages = {"declared": (), "restart": (RESTART,), "drift": (SMOKE_OWED,), "unknown": (HUNG,)}
    hosts = [host(str(number), *stages[each]) for number, each in enumerate(found)]
    assert answer(*hosts).exit_code == code
    assert answer(*hosts, reasons=("the inventory broke off",)).exit_code == 1


def test_what_programs_read() -> None:
    stopped = host("gpu1", stage("preflight", STOP), RESTART)
    reported = stopped.as_json()
    assert reported["not_checked"][:2] == ["packages", "layout"]
    assert stopped.findings[0].next_run == "stops here: check seating and power"
    assert reported["deviations"][1] == {
        "id": "driver.module-differs",
        "found": "driver.module-differs is wrong",
        "expected": "driver.module-differs is right",
        "effect": "restart",
        "action": "repairs driver.module-differs",
        "command": None,
        "since": {
            "when": UPGRADE.when,
            "by": "/usr/bin/unattended-upgrade",
            "change": "libcuda1 580.95.05-1 -> 580.105.08-1",
        },
    }
    assert "smoke" in host("gpu1", HUNG).not_checked
    assert host("gpu1", stage("libcuda", REPAIR)).not_checked == ()


def test_beside_a_restart_a_note_stays_a_note() -> None:
    noted = host("gpu1", RESTART, stage("smoke", NOTE))
    assert [each.effect for each in noted.findings] == ["restart", "note"]
    assert (len(noted.deviations), len(noted.notes)) == (1, 1)


@pytest.mark.parametrize(
    ("users", "reason"),
    [
        ([], "None"),
        ({"unknown": "no /proc"}, "None"),
        ([f"pid {i}" for i in range(9)], "in use by pid 0, pid 1, pid 2, pid 3 and 5 more"),
    ],
)
def test_who_keeps_a_host_from_its_restart_is_named(users: object, reason: str) -> None:
    assert reason in str(host("gpu1", RESTART, facts={"gpu_users": users}).reason)
    assert host("gpu1", facts={"gpu_users": users}).reason is None


@pytest.mark.parametrize(
    ("stages", "current"),
    [((stage("smoke"),), True), ((SMOKE_OWED,), False), ((stage("preflight", STOP),), False)],
)
def test_the_smoke_test_says_whether_it_stands_for_what_is_installed(
    stages: tuple[StageJudgement, ...], current: bool
) -> None:
    reported = host("gpu1", *stages, smoke=verdicts.explained(verdicts.document())).as_json()[
        "smoke"
    ]
    assert (reported["status"], reported["current"]) == ("pass", current)
    unread = host("gpu1", *stages, smoke=Unknown("it is too long")).as_json()["smoke"]
    assert unread == {"unknown": "it is too long"}


# -- on a terminal


def everything() -> Answer:
    """One host of every verdict, with everything that can be shown."""
    hosts = [
        *(host(f"gpu{number}") for number in (10, 3)),
        host("gpu2", stage("smoke", NOTE)),
        host("gpu4", RESTART, SMOKE_OWED),
        *(host(f"gpu{number}", stage("libcuda", REPAIR)) for number in (20, 1)),
        host("gpu5", stage("cuda", REPORT), rehearsal=True),
        host("gpu6", stage("preflight", STOP)),
        unreachable("gpu7"),
    ]
    return answer(*hosts, reasons=("the inventory holds gpu9 twice: remove one of them",))


def test_everything_that_a_check_shows() -> None:
    text = render(everything())
    snapshots.same("check.txt", f"{text}\n")
    for width in (80, 50):
        assert max(map(len, render(everything(), width=width).splitlines())) <= width
    coloured = render(everything(), coloured=True)
    assert "gpu7  \x1b[1;31mUNDETERMINED\x1b[0m" in coloured
    assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == text


def test_what_many_hosts_share_is_said_once() -> None:
    noted = [host(f"gpu{number}", stage("smoke", NOTE)) for number in range(1, 21)]
    text = render(answer(*noted, *(host(f"gpu{number}") for number in range(21, 26))))
    assert text.startswith("25 hosts as declared: gpu1-gpu25\n")
    assert text.count(NOTE.found) == 1
    assert f"- gpu1-gpu20: {NOTE.found}" in text
    changes = [replace(UPGRADE, when=f"2026-11-21T06:{minute}:03") for minute in (12, 40, 15)]
    upgraded = [finding(Id.DRIVER_MODULE_DIFFERS, "restart", since=each) for each in changes]
    hosts = [host(f"gpu{n}", stage("driver", each)) for n, each in enumerate(upgraded)]
    text = " ".join(render(answer(*hosts)).split())
    assert "3 hosts RESTART PENDING, 1 deviation: gpu0-gpu2" in text
    assert "since 2026-11-21 06:12 to 2026-11-21 06:40: libcuda1" in text


def test_a_new_host_is_a_line_for_each_deviation_and_what_stops_it_in_full() -> None:
    lacks = [finding(id_) for id_ in [*Id][-9:]]
    text = render(answer(host("new1", stage("preflight", STOP), stage("smoke", *lacks))))
    assert f"  {lacks[0].id}: {lacks[0].found}\n" in text
    assert text.count("expected  ") == 1
    assert render(answer(host("new1", stage("smoke", *lacks))), whole=True).count("expected  ") == 9


def test_with_v_each_host_stands_by_itself_with_its_stages() -> None:
    hosts = [host(name, stage("driver", found="driver 580 loaded")) for name in ("b", "a")]
    shown = "a  as declared\n  driver         driver 580 loaded\n\nb  as declared\n"
    assert render(answer(*hosts), whole=True).startswith(shown)


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_host_reaches_the_terminal_or_another_hosts_lines(kind: str) -> None:
    evil = HOSTILE[kind]
    change = replace(UPGRADE, command=evil, name=evil)
    texts = {"found": evil, "expected": evil, "action": evil, "command": evil, "since": change}
    odd = host("odd", stage("driver", finding(Id.DRIVER_MODULE_DIFFERS, "report", **texts)))
    noted = host("noted", stage("smoke", replace(NOTE, found=evil)))
    text = render(answer(host("good"), odd, unreachable("gone", evil), noted))
    assert not CONTROL.search(text)
    text.encode("utf-8")
    assert "2 hosts as declared: good, noted" in text.splitlines()


# -- what a user types, in the project's folder, with pyinfra itself and no host that answers


def test_outside_the_projects_folder_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reported = run(Request(inventory="inventories/lab.py"))
    assert (reported.exit_code, "deploy.py" in reported.reasons[0]) == (1, True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(PROJECT)
    return tmp_path


def inventory(home: Path, *names: str, port: int | None = None, **data: Any) -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = int(server.getsockname()[1])
    reported = {
        "ssh_hostname": "127.0.0.1",
        "ssh_port": port or free,
        "stack": "cpu-torch2.13",
        **data,
    }
    path = home / "fleet.py"
    path.write_text(f"gpu = {[(name, reported) for name in names]}\n")
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inventories/lob.py"], "there is: inventories/lab.py"),
        (["FLEET", "--limit", "dead1", "--limit", "dead2"], "--limit dead2 names no host of"),
        (["FLEET", "--limit", "dead1", "--exclude", "gpu"], "leaves no host"),
        (["FLEET", "--data", "stack=nosuch"], "nosuch"),
        (["FLEET", "--data", "nonsense"], "KEY=VALUE"),
        (["FLEET"], "could not be reached: Unable to connect to port"),
    ],
)
def test_what_cannot_be_told_is_exit_code_1_and_a_sentence(
    arguments: list[str], words: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words_typed = [inventory(home, "dead1") if each == "FLEET" else each for each in arguments]
    assert cli.main(["check", *words_typed]) == 1
    assert words in " ".join(capsys.readouterr().out.split())
    assert cli.main(["check", *words_typed, "--json"]) == 1
    reported = json.loads(capsys.readouterr().out)
    assert (reported["schema_version"], reported["verdict"], reported["exit_code"]) == (
        1,
        "unknown",
        1,
    )


@pytest.mark.parametrize("words", [["check"], ["check", "x", "--nonsense"], ["report", "x"], []])
def test_wrong_usage_is_1_and_never_drift(words: list[str]) -> None:
    assert cli.main(words) == 1


def test_a_check_that_is_ended_leaves_no_connection(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never says a word
        fleet = inventory(home, "slow1", port=silent.getsockname()[1])
        call = f"sys.exit(main(['check', {fleet!r}]))"
        process = subprocess.Popen(
            [sys.executable, "-c", f"import sys; from pyinfra_gpu.cli import main; {call}"],
            cwd=PROJECT, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        silent.settimeout(30)
        connection, _ = silent.accept()
        os.kill(process.pid, signal.SIGTERM)  # to us alone, as `kill` would
        assert process.wait(timeout=20) == 128 + signal.SIGTERM
        connection.settimeout(10)
        while connection.recv(1024):  # ends when its sockets are closed
            time.sleep(0)
        connection.close()


def test_a_check_that_is_ended_shows_what_the_others_said(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(state: object, asked: Host, question: object) -> HostAnswer:
        if asked.name == "slow1":
            gevent.sleep(0.1)
            os.kill(os.getpid(), signal.SIGINT)
            gevent.sleep(30)
        return host(asked.name)

    monkeypatch.setattr(running, "asked", ended)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    with pytest.raises(SystemExit) as code:
        cli.main(["check", inventory(home, "gpu1", "slow1")])
    assert code.value.code == 130
    out, err = capsys.readouterr()
    assert out == "gpu1  as declared\n\nended before the other hosts had answered\n"
    assert "1 of 2 hosts have answered; waiting for slow1" in err
    assert err.rindex("\x1b[?25h") > err.rindex("\x1b[?25l")  # the cursor is back
    assert err.endswith("\x1b[2K")  # and the line is gone


def test_a_host_that_cannot_be_judged_does_not_change_another_hosts_answer(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(state: object, host: Host, spec: object) -> Unanswered:
        if host.name == "odd":
            raise RecursionError("too deep")
        return Unanswered(reason="could not be reached: x", unreachable=True)

    monkeypatch.setattr(running, "answer", broken)
    reported = {e.name: e for e in run(Request(inventory=inventory(home, "odd", "dead1"))).hosts}
    assert "RecursionError" in str(reported["odd"].reason)
    assert reported["dead1"].reason == "could not be reached: x"


def test_a_closed_output_is_no_traceback(tmp_path: Path) -> None:
    code = "import sys; from pyinfra_gpu.cli import main; sys.exit(main(['check', 'nosuch.py']))"
    line = f"{shlex.join([sys.executable, '-c', code])} | true"
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, stderr=subprocess.PIPE, check=False)
    assert not re.search("Traceback|BrokenPipe", done.stderr.decode())
