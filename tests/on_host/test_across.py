"""The step across hosts, on this one machine: two launchers, which meet as two hosts' do.

What the judge finds wrong with their ranks are rows of `smoke_facts`. Two names for one machine are
what the step itself finds out, so the bundle's line that reads the boot id is replaced.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pyinfra_gpu.facts.verdict import Verdict
from pyinfra_gpu.on_host.smoke.options import Options
from tests.night import by_night
from tests.on_host import smoke_runs
from tests.on_host.smoke_runs import Replacement

pytestmark = pytest.mark.torch

NAMES = ("one", "two")
_BOOT_ID = 'Path("/proc/sys/kernel/random/boot_id").read_text().strip(),'
_DEADLINE = 300
"""Seconds; what does not hang never waits for it, and a busy machine takes long."""
SOON = ("worker.py", "_TIMEOUT = timedelta(seconds=60)", "_TIMEOUT = timedelta(seconds=20)")
"""How long a rank waits for one of another host."""


Launchers = dict[str, subprocess.Popen[bytes]]


def start(
    python: str,
    folder: Path,
    changes: Mapping[str, tuple[Replacement, ...]],
    *,
    deadline: int = _DEADLINE,
) -> Launchers:
    """Start launchers of the step of hosts one and two, each with its own bundle, whose ranks
    believe that they are on a machine of their own.

    + changes: host -> what its bundle has in place of the shipped text; others do not come
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    launchers = {}
    for name, replacements in changes.items():
        home = folder / name
        home.mkdir()
        machine = ("worker.py", f'"boot_id": {_BOOT_ID}', f'"boot_id": "{name}",')
        (home / "smoke_test.pyz").write_bytes(smoke_runs.bundle(machine, *replacements))
        asked = Options(
            mode="rehearsal-cpu",
            host=name,
            hosts=dict.fromkeys(NAMES, 1),
            address="127.0.0.1",
            port=port,
            deadline_s=deadline,
            allreduce_mib=1,
            output=str(home / "across.json"),
            fingerprint="run-1",
        )
        command = [python, str(home / "smoke_test.pyz"), asked.as_json()]
        with (home / "output").open("wb") as output:
            launchers[name] = subprocess.Popen(command, stdout=output, stderr=output, cwd=home)
    return launchers


def verdicts(launchers: Launchers, folder: Path) -> dict[str, dict[str, Any]]:
    """Wait for the launchers; return host -> its verdict. No process of theirs is left."""
    reported = {}
    for name, process in launchers.items():
        try:
            process.wait(2 * _DEADLINE)
        finally:
            process.kill()
        path = folder / name / "across.json"
        assert path.exists(), (folder / name / "output").read_text()
        found = Verdict.read(path.read_text())
        assert isinstance(found, Verdict), found
        reported[name] = found.as_json()
        assert smoke_runs.processes_of(folder / name) == []
    return reported


def failed(launchers: Launchers, folder: Path) -> dict[str, tuple[str, str, str]]:
    """Return host -> its verdict's status, what failed there, and the sentence."""
    found = verdicts(launchers, folder)
    assert not any(each["proof"] or each["status"] == "pass" for each in found.values()), found
    ends = {name: (each["status"], each["failed"]) for name, each in found.items()}
    return {name: (status, one["id"], one["sentence"]) for name, (status, one) in ends.items()}


def test_two_launchers_train_one_step_and_each_judges_all_ranks(
    python: str, tmp_path: Path
) -> None:
    launchers = start(python, tmp_path, dict.fromkeys(NAMES, ()))
    for name, verdict in verdicts(launchers, tmp_path).items():
        assert verdict["status"] == "pass", verdict["failed"]
        assert launchers[name].returncode == 3  # done, and no proof of GPU hosts
        assert (verdict["host"], verdict["hosts"]) == (name, [*NAMES])
        assert verdict["ranks"] == 2
        assert all(check["status"] == "pass" for check in verdict["checks"])
        assert verdict["fingerprint"] == "run-1"
        assert max(each["bytes"] for each in verdict["allreduce"]) == 2**20 + 4


_IMPORT = "        import torch\n    identity"
_RAISING = _IMPORT.replace("torch\n", 'torch\n    if "RANK" in os.environ: raise OSError\n')
_BACKWARD = "        before.backward()\n"
BROKEN: dict[str, tuple[Replacement, str]] = {
    "a rank that raises while the other host waits for it": (
        ("worker.py", _IMPORT, _RAISING),
        "raised at 'import': OSError",
    ),
    "a rank that is killed": (
        ("step.py", _BACKWARD, f"        __import__('signal').raise_signal(9)\n{_BACKWARD}"),
        "was ended by signal 9 (SIGKILL) at 'gradients'",
    ),
    "a rank that hangs": (
        ("step.py", _BACKWARD, f"        __import__('time').sleep(10**6)\n{_BACKWARD}"),
        "rank 1 was still at 'gradients' after",
    ),
}
LATE = (
    *("launcher.py", '(the deadline)") if late'),
    '(the deadline)") if late or any("gradients" in j.steps for j in run.journals.values())'
    " and time.monotonic() > self._began + 60",
)


@pytest.mark.parametrize("what", by_night(BROKEN, ["a rank that is killed"]))
def test_the_host_on_which_something_is_wrong_says_so_and_the_other_that_it_does_not_know(
    what: str, python: str, tmp_path: Path
) -> None:
    change, words = BROKEN[what]
    late = (LATE,) if "hangs" in what else ()
    changes = {"one": (SOON,), "two": (change, *late)}
    found = failed(start(python, tmp_path, changes), tmp_path)
    assert found["two"][:2] == ("fail", "S6.import"), found
    assert words in found["two"][2], found
    assert found["one"][0] == "unknown", found


@pytest.mark.parametrize("here", by_night(NAMES, ["one"]))
def test_a_host_that_never_comes_is_named(here: str, python: str, tmp_path: Path) -> None:
    (other,) = {*NAMES} - {here}
    launchers = start(python, tmp_path, {here: ()}, deadline=45)
    _, check, sentence = failed(launchers, tmp_path)[here]
    assert check == "S6.import"
    assert f"{here} did not meet {other} at 127.0.0.1 port" in sentence


@pytest.mark.parametrize("gone", by_night(NAMES, ["two"]))
def test_a_launcher_that_is_gone_ends_the_other_and_leaves_no_process(
    gone: str, python: str, tmp_path: Path
) -> None:
    (here,) = {*NAMES} - {gone}
    launchers = start(python, tmp_path, dict.fromkeys(NAMES, (SOON,)))
    limit = time.monotonic() + _DEADLINE
    while not [*(tmp_path / gone / "across.json.logs").glob("rank*.jsonl")]:
        assert time.monotonic() < limit
        time.sleep(0.05)
    launchers.pop(gone).send_signal(signal.SIGKILL)
    status, *_ = failed(launchers, tmp_path)[here]
    assert status in ("unknown", "fail")
    limit = time.monotonic() + 60
    while smoke_runs.processes_of(tmp_path / gone):
        assert time.monotonic() < limit
        time.sleep(0.1)
