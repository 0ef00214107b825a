"""Whatever a command starts, and however it resists, nothing of it is left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyinfra_gpu.on_host.smoke import processes

_READY = "__import__('pathlib').Path(__import__('sys').argv[1], 'ready').touch()"
_SLEEP = f"{_READY}; import time; time.sleep(1000)"
_IGNORE = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {_SLEEP}"
_LEAVES_HOME = (
    "import os, time\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    f"        {_READY}; time.sleep(1000)\n"
    "    os._exit(0)\n"
)
_FORKS_ON_TERM = (
    "import os, signal, time\n"
    "def again(*_):\n"
    "    if os.fork() == 0:\n"
    "        signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)\n"
    "signal.signal(signal.SIGTERM, again)\n"
    f"{_READY}\n"
    "while True: time.sleep(1)\n"
)

COMMANDS = {
    "sleeps for ever": _SLEEP,
    "ignores SIGTERM": _IGNORE,
    "has a child in a session of its own and stays": _LEAVES_HOME + _SLEEP,
    "has left a daemon and ended": _LEAVES_HOME,
    "has a stubborn child": f"import os; os.fork()\n{_IGNORE}",
    "forks when it is asked to end": _FORKS_ON_TERM,
}

# Runs in a process of its own, as the launcher does: it adopts orphans, which must not be pytest's.
_LAUNCHER = """
import json, os, sys, time
from pathlib import Path
from pyinfra_gpu.on_host.smoke.launcher import supervise
supervise.TERM_GRACE = 0.5
directory = Path(sys.argv[1])
command = [sys.executable, "-c", sys.argv[2], str(directory)]
tree = supervise.Tree(command, os.environ, directory, directory / "log")
(directory / "started").write_text(str(tree._command.pid))
if sys.argv[3] == "wait":
    time.sleep(1000)
while not (directory / "ready").exists():
    time.sleep(0.01)
before = tree.left()
began = time.monotonic()
tree.end()
print(json.dumps({"before": len(before), "left": tree.left(), "code": tree.code,
                  "seconds": time.monotonic() - began}))
"""


def _launcher(tmp_path: Path, program: str, then: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _LAUNCHER, str(tmp_path), program, then]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _with_argument(argument: str) -> list[int]:
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if argument.encode() in words:
                found.append(int(process.name))
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_left_of_a_command_that(name: str, tmp_path: Path) -> None:
    launcher = _launcher(tmp_path, COMMANDS[name], "end")
    output, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 0
    assert '"left": []' in output
    assert '"before": 0' not in output
    assert _with_argument(str(tmp_path)) == []


def test_a_stubborn_command_is_ended_within_the_grace_period(tmp_path: Path) -> None:
    began = time.monotonic()
    launcher = _launcher(tmp_path, _IGNORE, "end")
    output, _ = launcher.communicate(timeout=120)
    assert '"code": -9' in output
    assert time.monotonic() - began < 30


def test_the_command_dies_when_its_launcher_is_killed(tmp_path: Path) -> None:
    launcher = _launcher(tmp_path, _IGNORE, "wait")
    started = tmp_path / "started"
    limit = time.monotonic() + 60
    while not started.exists() or not started.read_text():
        assert time.monotonic() < limit
        time.sleep(0.02)
    command = int(started.read_text())
    assert processes.alive(command)
    launcher.kill()
    launcher.wait()
    limit = time.monotonic() + 30
    while processes.alive(command) and time.monotonic() < limit:
        time.sleep(0.02)
    assert not processes.alive(command)


def test_descendants_are_found_through_all_generations() -> None:
    program = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    grandchild = int(parent.stdout.readline())
    try:
        below = {process.pid: process.parent for process in processes.descendants(os.getpid())}
        assert below[parent.pid] == os.getpid()
        assert below[grandchild] == parent.pid
    finally:
        os.kill(grandchild, 9)
        parent.wait()
        parent.stdout.close()


def test_a_process_with_an_odd_name_is_read(tmp_path: Path) -> None:
    odd = tmp_path / "a) S 1 (b"
    odd.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(odd), "1000"])
    try:
        found = processes.read(process.pid)
        assert found is not None
        assert found.parent == os.getpid()
    finally:
        process.kill()
        process.wait()


def test_an_ended_process_is_not_alive() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    limit = time.monotonic() + 60
    while processes.alive(process.pid):  # it ends, and stays a zombie until we wait for it
        assert time.monotonic() < limit
        time.sleep(0.02)
    assert processes.read(process.pid) is not None
    process.wait()
    assert processes.read(process.pid) is None
