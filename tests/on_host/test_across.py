"""The step across hosts, on this one machine: two launchers, led as the controller leads them.

Two names for one machine are what the step itself finds out; where a test needs two machines, the
bundle's line that reads the boot id is replaced, as every other breakage here.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent  # type: ignore[import-untyped]
import pytest

from pyinfra_gpu.engine.across_hosts import Trained, gone, read
from pyinfra_gpu.engine.together import Together
from pyinfra_gpu.facts.verdict import AcrossVerdict
from pyinfra_gpu.on_host.smoke.across import Part, Step
from tests.night import by_night
from tests.on_host import smoke_runs
from tests.on_host.smoke_runs import Replacement

pytestmark = pytest.mark.torch

_BOOT_ID = 'Path("/proc/sys/kernel/random/boot_id").read_text().strip(),'
RUN_ID = "run-1"
_DEADLINE = 300
"""Seconds; what does not hang never waits for it, and a busy machine takes long."""


def machine(name: str) -> Replacement:
    """What makes a launcher's ranks believe that they are on a machine of their own."""
    return ("worker.py", f'"boot_id": {_BOOT_ID}', f'"boot_id": "{name}",')


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass
class Launcher:
    """One host's part, running below a folder of its own."""

    name: str
    folder: Path
    process: subprocess.Popen[bytes]

    def run(self) -> Part:
        """Wait for its end; return what it has left."""
        while self.process.poll() is None:
            gevent.sleep(0.05)
        path = self.folder / "across.json.part"
        part = read(path.read_text(), RUN_ID) if path.exists() else None
        return part or gone(self.name, f"the test on {self.name} ended without a word")

    def end(self) -> None:
        (self.folder / "across.json.end").write_text(RUN_ID)


def start(
    python: str,
    folder: Path,
    changes: Mapping[str, tuple[Replacement, ...]],
    *,
    deadline: int = _DEADLINE,
    port: int | None = None,
) -> list[Launcher]:
    """Start launchers of the step of hosts one and two, each with its own bundle.

    + changes: host -> what its bundle has in place of the shipped text; others do not come
    """
    across = {"hosts": ["one", "two"], "address": "127.0.0.1", "run_id": RUN_ID}
    across["port"] = port or free_port()  # type: ignore[assignment]
    launchers = []
    for name, replacements in changes.items():
        home = folder / name
        home.mkdir()
        (home / "smoke_test.pyz").write_bytes(smoke_runs.bundle(*replacements))
        command = [
            *(str(home / "smoke_test.pyz"), "--mode", "rehearsal-cpu", "--host", name),
            *("--ranks", "1", "--across", json.dumps(across), "--deadline", str(deadline)),
            *("--allreduce-mib", "1", "--output", str(home / "across.json")),
        ]
        with (home / "output").open("wb") as output:
            process = subprocess.Popen([python, *command], stdout=output, stderr=output, cwd=home)
        launchers.append(Launcher(name, home, process))
    return launchers


BOTH = {name: (machine(name),) for name in ("one", "two")}


def lead(
    launchers: list[Launcher],
    *,
    wait_for: tuple[str, ...] = ("one", "two"),
    deadline: int = _DEADLINE,
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[str, dict[str, Any]]:
    """Lead the step as the controller does; return host -> the verdict.

    + wait_for: the hosts that are waited for; meanwhile: called once, beside the launchers
    """
    step = Step(
        mode="rehearsal-cpu",
        hosts={"one": 1, "two": 1},
        fingerprints={"one": "one-is", "two": "two-is"},
        run_id=RUN_ID,
        deadline=deadline,
        allreduce_mib=1,
    )
    trained = Trained(Together(set), step, grace_s=1.0, last_words_s=6.0)
    tasks = {
        each.name: gevent.spawn(trained.take_part, each.name, each.run, each.end)
        for each in launchers
    }
    gevent.spawn(meanwhile).join()
    try:
        told = {name: tasks[name].get(timeout=2 * _DEADLINE).as_json() for name in wait_for}
    finally:
        for each in launchers:
            each.process.send_signal(signal.SIGCONT)
            each.process.kill()
        gevent.killall(list(tasks.values()))
    assert all(isinstance(AcrossVerdict.read(json.dumps(t)), AcrossVerdict) for t in told.values())
    return told


def failed(launchers: list[Launcher], **how: Any) -> tuple[str, str]:
    """Return what has failed, and see that all hosts say the same and none is proven."""
    verdicts = lead(launchers, **how)
    told = {(each["failed"]["id"], each["failed"]["sentence"]) for each in verdicts.values()}
    assert len(told) == 1, told
    assert not any(each["proof"] or each["status"] == "pass" for each in verdicts.values())
    return told.pop()


def test_two_launchers_train_one_step_and_note_both_fingerprints(
    python: str, tmp_path: Path
) -> None:
    launchers = start(python, tmp_path, BOTH)
    verdicts = lead(launchers)
    for launcher in launchers:
        verdict = verdicts[launcher.name]
        assert verdict["status"] == "pass", verdict["failed"]
        assert launcher.process.returncode == 3  # done, and no proof of GPU hosts
        assert verdict["host"] == launcher.name
        assert sorted(each["host"] for each in verdict["ranks"]) == ["one", "two"]
        assert all(check["status"] == "pass" for check in verdict["checks"])
        assert verdict["hosts"] == {"one": "one-is", "two": "two-is"}
        assert max(each["bytes"] for each in verdict["metrics"]["allreduce"]) == 2**20 + 4


_IMPORT = "        import torch\n    identity"
_RAISING = _IMPORT.replace("torch\n", 'torch\n    if "RANK" in os.environ: raise OSError\n')
_HOOK = "return default_hooks.allreduce_hook(group, bucket)"
BROKEN: dict[str, tuple[tuple[Replacement, ...], str, str]] = {
    "one machine under two names": ((machine("one"),), "S6.hosts", "the same machine"),
    "a rank that raises while the other host waits for it": (
        (machine("two"), ("worker.py", _IMPORT, _RAISING)),
        *("S6.finished", "on two, rank"),
    ),
    "another torch": (
        (machine("two"), ("worker.py", '"torch": str(torch.__', '"torch": "2" + str(torch.__')),
        *("S6.software", "two has torch 22."),
    ),
    "gradients that are not the mean": (
        (machine("two"), ("step.py", _HOOK, f"{_HOOK}.then(lambda done: done.value() * 1.5)")),
        *("S6.grad_bitwise", "are not the mean"),
    ),
}


@pytest.mark.parametrize("what", by_night(BROKEN, [*BROKEN][1:2]))
def test_what_is_wrong_on_one_host_fails_both_with_one_sentence(
    what: str, python: str, tmp_path: Path
) -> None:
    changes, check, words = BROKEN[what]
    found, sentence = failed(start(python, tmp_path, {**BOTH, "two": changes}))
    assert (found, words in sentence) == (check, True), sentence


def test_a_port_in_use_is_one_sentence(python: str, tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        launchers = start(python, tmp_path, {"one": ()}, port=port)
        check, sentence = failed(launchers, wait_for=("one",), deadline=1)
    assert check == "S6.finished"
    assert f"port {port} cannot be listened at on one: " in sentence


@pytest.mark.night
@pytest.mark.parametrize(
    ("here", "words"),
    [
        ("one", "not all of two came in time"),
        ("two", "two could not reach one at 127.0.0.1 port"),
    ],
)
def test_a_host_that_never_comes_is_named(
    here: str, words: str, python: str, tmp_path: Path
) -> None:
    launchers = start(python, tmp_path, {here: ()}, deadline=45)
    check, sentence = failed(launchers, wait_for=(here,), deadline=60)
    assert (check, words in sentence) == ("S6.finished", True), sentence


@pytest.mark.parametrize(
    ("number", "words", "deadline"),
    [
        (signal.SIGKILL, "the test on two ended without a word", _DEADLINE),
        pytest.param(signal.SIGSTOP, "two did not finish in time", 30, marks=pytest.mark.night),
    ],
)
def test_a_launcher_that_is_gone_ends_the_other_and_leaves_no_process(
    number: signal.Signals, words: str, deadline: int, python: str, tmp_path: Path
) -> None:
    launchers = start(python, tmp_path, BOTH)
    two = launchers[1]

    def take_away() -> None:
        with gevent.Timeout(_DEADLINE):
            while not [*(two.folder / "across.json.logs").glob("rank*.jsonl")]:
                gevent.sleep(0.05)
        two.process.send_signal(number)

    check, sentence = failed(launchers, wait_for=("one",), deadline=deadline, meanwhile=take_away)
    assert (check, words in sentence) == ("S6.finished", True), sentence
    with gevent.Timeout(60):
        while any(smoke_runs.processes_of(tmp_path / name) for name in ("one", "two")):
            gevent.sleep(0.1)
