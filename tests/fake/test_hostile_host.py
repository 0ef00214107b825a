"""A hostile host beside a healthy one: the healthy one's answer is the same, and in its time.

Both are real SSH servers on loopback (`hostile_server.py`), and the controller is a process of its
own, as `pyinfra-gpu check` is.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fake_host import DATA, FakeHost

from tests import forked

PROJECT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
LOOK_S = 10
MOST_MIB = 300
LATE_S = 20.0  # a guard against waiting for the others
GOOD = "good"

CONTROLLER = """
import json, resource, sys, time
from pyinfra_gpu.report.check.running import Request, run
began, came = time.monotonic(), {}
def arrived(host, names):
    came[host.name] = time.monotonic() - began
answer = run(Request(inventory=sys.argv[1]), arrived)
print(json.dumps({
    "hosts": {host.name: host.as_json() for host in answer.hosts},
    "came": came,
    "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
}))
"""


@dataclass
class Told:
    """What a check of a healthy host and of hostile ones brought."""

    hosts: dict[str, Any]
    came: dict[str, float]
    peak_mib: float
    raw: str
    errors: str

    def reason(self, kind: str) -> str:
        return str(self.hosts[name_of(kind)]["reason"])

    @property
    def good(self) -> str:
        return json.dumps(self.hosts[GOOD], sort_keys=True)


def name_of(kind: str) -> str:
    return re.sub(r"\W+", "-", kind)


@contextmanager
def serving(tmp_path: Path, kinds: tuple[str, ...]) -> Iterator[list[int]]:
    other = FakeHost(name="other", data={**DATA, "prefix": "/srv/other"})
    # Many hosts answer as the good one does: by a name they would be one machine with many names.
    good = FakeHost(name=GOOD, plain={"system.hostname": "?it does not say"})
    answers = {"good": good.probe_lines(), "other": other.probe_lines()}
    (tmp_path / "answers.json").write_text(json.dumps(answers), encoding="utf-8")
    program = [sys.executable, str(HERE / "hostile_server.py"), str(tmp_path / "answers.json")]
    with subprocess.Popen(
        [*program, *kinds], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        yield [int(server.stdout.readline()) for _ in kinds]
        server.communicate()


def environment(tmp_path: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(PROJECT)}


def data(tmp_path: Path, port: int, *, look_s: int) -> dict[str, Any]:
    """Return what is declared of a host at that port, which has so many seconds for a look."""
    return {
        **DATA,
        "ssh_hostname": "127.0.0.1",
        "ssh_port": port,
        "ssh_user": "ubuntu",
        "ssh_password": "x",
        "ssh_known_hosts_file": str(tmp_path / "known_hosts"),
        "ssh_allow_agent": False,
        "ssh_look_for_keys": False,
        "look_timeout_s": look_s,
        "privilege": "none",
    }


def inventory(tmp_path: Path, hosts: list[tuple[str, dict[str, Any]]]) -> Path:
    fleet = tmp_path / "fleet.py"
    fleet.write_text(
        "from pyinfra_gpu.engine.transport import CONNECT_KWARGS\n"
        f"cpu = ({hosts!r}, {{'ssh_paramiko_connect_kwargs': CONNECT_KWARGS}})\n"
    )
    return fleet


def check(tmp_path: Path, *kinds: str) -> Told:
    with serving(tmp_path, (GOOD, *kinds)) as ports:
        hosts = [
            (name_of(kind), data(tmp_path, port, look_s=60 if kind == GOOD else LOOK_S))
            for kind, port in zip((GOOD, *kinds), ports, strict=True)
        ]
        fleet = inventory(tmp_path, hosts)
        command = [sys.executable, "-c", CONTROLLER, str(fleet)]
        known = environment(tmp_path)
        done = subprocess.run(
            command,
            cwd=PROJECT,
            env=known,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return Told(**json.loads(done.stdout), raw=done.stdout, errors=done.stderr)


@cache
def alone(folder: Path) -> Told:
    return check(folder)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return alone(tmp_path_factory.mktemp("alone"))


def the_healthy_host_is_as_alone(told: Told, usual: Told) -> None:
    assert told.good == usual.good
    assert told.came[GOOD] < usual.came[GOOD] + LATE_S
    assert told.peak_mib < MOST_MIB
    assert "Traceback" not in told.errors
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", told.raw + told.errors)


def test_the_healthy_host_alone_is_looked_at(usual: Told) -> None:
    assert usual.hosts[GOOD]["reason"] is None
    assert usual.hosts[GOOD]["stages"]["preflight"] == "declared"


SILENT = {
    "silent": "could not be reached",
    "slow greeting": "could not be reached",
    "hangs up": "could not be reached",
    "never opens a channel": "no answer came within 10 s",
    "never takes a command": "no answer came within 10 s",
    "never answers": "no answer came within 10 s",
    "never ends": "no answer came within 10 s",
}


def test_hosts_that_never_answer_are_given_up_in_time(tmp_path: Path, usual: Told) -> None:
    told = check(tmp_path, *SILENT)
    the_healthy_host_is_as_alone(told, usual)
    for kind, words in SILENT.items():
        assert words in told.reason(kind) or "within 10 s" in told.reason(kind)
        assert told.came[name_of(kind)] < 10 * LOOK_S


FLOODS = {
    "endless lines": "it sent more than 2048 KiB",
    "endless line": "it sent more than 2048 KiB",
    "endless errors": "it sent more than 2048 KiB",
    "more than it may": "",
    "endless greeting": "before the login",
    "endless greetings": "could not be reached",
}


def test_hosts_that_never_stop_are_given_up(tmp_path: Path, usual: Told) -> None:
    told = check(tmp_path, *FLOODS)
    the_healthy_host_is_as_alone(told, usual)
    for kind, words in FLOODS.items():
        assert told.hosts[name_of(kind)]["verdict"] == "unknown", kind
        assert words in told.reason(kind), kind


CONTENT = {
    "deep": None,
    "huge": None,
    "escapes": None,
    "bad UTF-8": None,
    "another host's": "unknown",
    "no answer": "unknown",
    "half": "unknown",
    "closes in the middle": "unknown",
}


def test_hosts_that_answer_nonsense_are_judged_or_refused(tmp_path: Path, usual: Told) -> None:
    told = check(tmp_path, *CONTENT)
    the_healthy_host_is_as_alone(told, usual)
    for kind, verdict in CONTENT.items():
        host = told.hosts[name_of(kind)]
        assert host["verdict"] == (verdict or host["verdict"]), kind
        assert host["verdict"] != "declared" or kind in ("escapes", "bad UTF-8"), kind


# What a deploy says of a host that ends the connection before a login, and of no other.
BEFORE_LOGIN = {
    "hangs up": "no greeting of an SSH server came",
    "endless greeting": "it sent more than 128 KiB before the login",
    "floods behind its greeting": "it sent more than 128 KiB before the login",
    "unreadable farewell": "it does not keep to the rules of SSH (UnicodeDecodeError",
    "escapes in its farewell": "SSH error",
    "escapes in its greeting": "Indecipherable protocol version",
    "junk": "SSH error",
    "drops before the login": "Could not connect (it hung up before the login)",
}


def test_a_plan_of_the_healthy_host_comes_to_its_end_beside_hosts_that_misbehave(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, (GOOD, *BEFORE_LOGIN)) as ports:
        hosts = [
            (name_of(kind), data(tmp_path, port, look_s=60))
            for kind, port in zip((GOOD, *BEFORE_LOGIN), ports, strict=True)
        ]
        command = ["pyinfra", "--dry", str(inventory(tmp_path, hosts)), "deploy.py"]
        known = environment(tmp_path) | {"PYINFRA_PROGRESS": "off"}
        done = forked.run(command, known, 120)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "Traceback" not in said
    assert "xception" not in said
    assert not re.search(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]|\x1b\]", said)
    assert f"\n{GOOD}  as declared\n" in said
    for kind, words in BEFORE_LOGIN.items():
        told = [line for line in said.splitlines() if f"[{name_of(kind)}]" in line]
        assert any(words in line for line in told), (kind, told)


def test_a_plan_that_is_ended_claims_nothing_of_a_host_that_had_not_answered(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, ("never answers",)) as ports:
        fleet = inventory(tmp_path, [("mute", data(tmp_path, ports[0], look_s=60))])
        pyinfra = str(Path(sys.executable).parent / "pyinfra")
        with subprocess.Popen(
            [pyinfra, "--dry", str(fleet), "deploy.py"],
            cwd=PROJECT,
            env=environment(tmp_path) | {"PYINFRA_PROGRESS": "off"},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            while "Loading: deploy.py" not in process.stderr.readline():
                assert process.poll() is None
            time.sleep(1)
            process.send_signal(signal.SIGTERM)
            said = process.stderr.read()
    assert process.returncode == 128 + signal.SIGTERM
    assert "interrupted: a command that was begun goes on" in said
    assert "mute  NOT CHECKED" in said
    assert "as declared" not in said


# A fleet: pyinfra's 40 at once, each for the whole of its time-out, would be three rounds of it.
TIMEOUT_S = 10
NOBODY, MUTE = 50, 30
COMMAND_LINE = f"""
import sys
from pyinfra.api.config import config_defaults
from pyinfra_gpu import cli
from pyinfra_gpu.engine import transport
config_defaults["CONNECT_TIMEOUT"] = transport.GREETING_S = {TIMEOUT_S}
print(flush=True)
sys.exit(cli.main(["check", sys.argv[1]]))
"""


@contextmanager
def nobody() -> Iterator[int]:
    """A port at which nothing answers: whoever listens there has a full queue."""
    with ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):
            each = stack.enter_context(socket.socket())
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        yield full.getsockname()[1]


def test_a_fleet_waits_once_for_all_that_do_not_answer(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, (GOOD, "silent")) as ports, nobody() as port:
        hosts = [(f"a{each}", data(tmp_path, port, look_s=60)) for each in range(NOBODY)]
        hosts += [(f"b{each}", data(tmp_path, ports[1], look_s=60)) for each in range(MUTE)]
        hosts.append(("healthy", data(tmp_path, ports[0], look_s=60)))
        command = [sys.executable, "-c", COMMAND_LINE, str(inventory(tmp_path, hosts))]
        came: dict[str, float] = {}
        with subprocess.Popen(
            command, cwd=PROJECT, env=environment(tmp_path), stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            began = time.monotonic()
            for line in process.stdout:
                came.setdefault(line.strip(), time.monotonic() - began)
    assert [line for line in came if line.startswith("healthy") and "as declared" in line], came
    given_up = [
        came[f"{NOBODY} hosts UNDETERMINED: a0-a{NOBODY - 1}"],
        came[f"{MUTE} hosts UNDETERMINED: b0-b{MUTE - 1}"],
    ]
    assert max(given_up) < 10 * TIMEOUT_S
