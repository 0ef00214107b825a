"""Hostile hosts beside a healthy one: the healthy one's answer is the same.

All are real SSH servers on loopback (`hostile_server.py`), and the controller is a process of its
own, as `pyinfra-gpu check` is.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fake_host import DATA, FakeHost

from tests import forked

PROJECT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
LOOK_S = 10
MOST_MIB = 300
GOOD = "good"
HARMFUL = re.compile(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]|\x1b(?!\[[\d;]*m)")
"""What would do more to a terminal than colour it."""

CONTROLLER = """
import json, resource, sys
from pyinfra_gpu.report.check.running import Request, run
answer = run(Request(inventory=sys.argv[1]))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([{host.name: host.as_json() for host in answer.hosts}, peak]))
"""


def name_of(kind: str) -> str:
    return re.sub(r"\W+", "-", kind)


@contextmanager
def serving(tmp_path: Path, kinds: Iterable[str]) -> Iterator[list[int]]:
    """Serve a port for each kind of host."""
    # Many hosts answer as the good one does: by a name they would be one machine with many names.
    good = FakeHost(name=GOOD, reported={"system.hostname": "?it does not say"})
    other = FakeHost(name="other", data={**DATA, "prefix": "/srv/other"})
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
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "PYTHONPATH": str(PROJECT),
        "PYINFRA_PROGRESS": "off",
    }


@contextmanager
def inventory(tmp_path: Path, kinds: Iterable[str]) -> Iterator[str]:
    """Serve hosts of these kinds; yield the file that declares them."""
    with serving(tmp_path, kinds) as ports:
        same = {
            **DATA,
            "ssh_hostname": "127.0.0.1",
            "ssh_user": "ubuntu",
            "ssh_password": "x",
            "ssh_known_hosts_file": str(tmp_path / "known_hosts"),
            "ssh_allow_agent": False,
            "ssh_look_for_keys": False,
            "privilege": "none",
        }
        times = (60 if kind == GOOD else LOOK_S for kind in kinds)
        hosts = [
            (name_of(kind), {"ssh_port": port, "look_timeout_s": seconds})
            for kind, port, seconds in zip(kinds, ports, times, strict=True)
        ]
        fleet = tmp_path / "fleet.py"
        fleet.write_text(f"cpu = ({hosts!r}, {same!r})\n")
        yield str(fleet)


def check(tmp_path: Path, *kinds: str) -> dict[str, Any]:
    """Return what a check says of each host of these kinds; its words harm no terminal."""
    with inventory(tmp_path, kinds) as fleet:
        done = subprocess.run(
            [sys.executable, "-c", CONTROLLER, fleet],
            cwd=PROJECT,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    hosts, peak_mib = json.loads(done.stdout)
    assert peak_mib < MOST_MIB
    assert not HARMFUL.search(done.stderr + json.dumps(hosts, ensure_ascii=False))
    return dict(hosts)


NOTHING = "no answer came within 10 s"
UNREACHED = "could not be reached"
FLOOD = "it sent more than 2048 KiB"
HOSTILE = {
    **dict.fromkeys(("silent", "hangs up"), UNREACHED),
    **dict.fromkeys(("never opens a channel", "never takes a command"), NOTHING),
    **dict.fromkeys(("never answers", "never ends"), NOTHING),
    **dict.fromkeys(("endless lines", "endless errors"), FLOOD),
    "endless greeting": "before the login",
    "more than it may": "",
    "another host's": "",
    "closes in the middle": "",
}
"""Kind -> why nothing is known of such a host."""

ODD = ("deep", "escapes")
"""What is judged by the rest of what it tells."""


def test_the_answer_of_a_healthy_host_is_the_same_beside_hostile_ones(tmp_path: Path) -> None:
    alone = check(tmp_path, GOOD)
    reported = check(tmp_path, GOOD, *HOSTILE, *ODD)
    assert alone[GOOD]["stages"]["preflight"] == "declared"
    assert reported[GOOD] == alone[GOOD]
    for kind, words in HOSTILE.items():
        host = reported[name_of(kind)]
        assert host["verdict"] == "unknown", kind
        assert words in host["reason"] or "within 10 s" in host["reason"], (kind, host["reason"])
    for kind in ODD:
        assert reported[name_of(kind)]["reason"] is None, kind


# What a deploy says of a host that ends the connection before a login, and of no other.
BEFORE_LOGIN = {
    "hangs up": "Error reading SSH protocol banner",
    "endless greeting": "it sent more than 128 KiB before the login",
    "floods behind its greeting": "it sent more than 128 KiB before the login",
    "escapes in its farewell": "could not be reached: Negotiation failed",
    "drops before the login": "could not be reached: it hung up before the login",
}


def test_a_plan_of_the_healthy_host_comes_to_its_end_beside_hosts_that_misbehave(
    tmp_path: Path,
) -> None:
    with inventory(tmp_path, (GOOD, *BEFORE_LOGIN)) as fleet:
        words = ["pyinfra", "--dry", fleet, "deploy.py"]
        done = forked.run(words, environment(tmp_path), 120)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "Traceback" not in said
    assert "xception" not in said
    assert not HARMFUL.search(said)
    assert f"\n{GOOD}  as declared\n" in said
    for kind, words_of in BEFORE_LOGIN.items():
        reported = [line for line in said.splitlines() if f"[{name_of(kind)}]" in line]
        assert any(words_of in line for line in reported), (kind, reported)
