"""One run at a time on a host: the program that holds the lease, and who waits for whom."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest
from pyinfra.api import Config, Inventory, State
from pyinfra.api.connect import connect_all
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_state

from pyinfra_gpu import on_host
from pyinfra_gpu.engine import lease
from pyinfra_gpu.spec import HostSpec, resolve

MARK = "pyinfra-gpu-lease "
Running = subprocess.Popen[str]


def begin(file: Path, who: str = "me", silent: int = 60) -> Running:
    command = on_host.program("lease.sh", str(file), str(silent), who)
    return subprocess.Popen(
        ["/bin/sh", "-c", f"exec {command}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def said(process: Running) -> str:
    """What it says next, behind the blank line that ends whatever a login shell has printed."""
    assert process.stdout
    line = process.stdout.readline()
    return (process.stdout.readline() if line == "\n" else line).rstrip("\n").removeprefix(MARK)


def end(*processes: Running) -> None:
    for process in processes:
        process.communicate(timeout=30)


def test_the_second_is_told_who_has_it_since_when(tmp_path: Path) -> None:
    file = tmp_path / "run/lease"
    first = begin(file, "alice@laptop (pyinfra inventories/lab.py deploy.py)")
    assert said(first) == "taken"
    second = begin(file, "bob@desk (pyinfra)")
    words = said(second)
    assert words.startswith("busy alice@laptop (pyinfra inventories/lab.py deploy.py) since 20")
    assert words.endswith(" UTC")
    assert second.wait(20) == 1
    end(first)
    assert file.read_text() == ""
    third = begin(file, "bob@desk (pyinfra)")
    assert said(third) == "taken"
    assert file.read_text().startswith("bob@desk (pyinfra) since ")
    end(third)


def test_a_run_that_says_nothing_any_more_loses_it(tmp_path: Path) -> None:
    first = begin(tmp_path / "lease", silent=1)
    assert said(first) == "taken"
    assert first.stdin
    for _ in range(4):
        time.sleep(0.4)
        first.stdin.write(".")
        first.stdin.flush()
    assert first.poll() is None  # longer than a second, but never a second without a word
    assert first.wait(20) == 0
    second = begin(tmp_path / "lease")
    assert said(second) == "taken"
    end(first, second)


def test_where_it_cannot_be_had_the_reason_is_told(tmp_path: Path) -> None:
    for name in ("sh", "mkdir", "head", "date"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    command = on_host.program("lease.sh", str(tmp_path / "lease"), "60", "x")
    without_flock = {"env": {"PATH": str(tmp_path)}, "input": "", "text": True}
    done = subprocess.run(["/bin/sh", "-c", command], stdout=subprocess.PIPE, **without_flock)  # type: ignore[call-overload]
    assert done.stdout == f"\n{MARK}failed flock is not on this host\n"
    (tmp_path / "file").write_text("")
    first = begin(tmp_path / "file/lease")
    assert [line for line in (said(first), said(first)) if "cannot be written" in line]
    end(first)


# --- as a run takes it, on the machine that it runs on


@pytest.fixture
def run(tmp_path: Path) -> Iterator[tuple[State, Any, HostSpec]]:
    """A run that acts on this machine, without root."""
    state = State(Inventory((["@local"], {})), Config())
    state.current_stage = StateStage.Prepare
    connect_all(state)
    state.current_stage = StateStage.Execute
    host = state.inventory.get_host("@local")
    yield state, host, spec(tmp_path)
    holding = host.connector_data.get(lease._KEY)
    if holding is not None:
        holding.close()


def spec(folder: Path) -> HostSpec:
    data = {"stack": "cpu-torch2.13", "privilege": "none", "prefix": str(folder / "ours")}
    return resolve(data, "@local")


def ensure(run: tuple[State, Any, HostSpec]) -> None:
    with ctx_state.use(run[0]):
        lease.ensure(*run)


def hold(folder: Path) -> Running:
    other = begin(folder / "ours/.lease", "bob@desk (pyinfra lab.py)")
    assert said(other) == "taken"
    return other


def test_it_is_taken_once_and_held_and_not_by_a_plan(run: Any, tmp_path: Path) -> None:
    run[0].current_stage = StateStage.Prepare
    ensure(run)
    assert not (tmp_path / "ours").exists()
    run[0].current_stage = StateStage.Execute
    ensure(run)
    holding = run[1].connector_data[lease._KEY]
    ensure(run)
    assert run[1].connector_data[lease._KEY] is holding
    assert f" since {time.strftime('%Y')}" in (tmp_path / "ours/.lease").read_text()
    other = begin(tmp_path / "ours/.lease")
    assert said(other).startswith("busy ")
    end(other)


def test_who_does_not_get_it_is_told_who_has_it(run: Any, tmp_path: Path) -> None:
    other = hold(tmp_path)
    words = (
        r"bob@desk \(pyinfra lab.py\) has been working here since 20.* UTC; run again when it has"
    )
    with pytest.raises(lease.LeaseError, match=words):
        ensure(run)
    end(other)
    ensure(run)


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("sleep 60", r"its lease was not given within 1 s"),
        ("yes", r"its lease cannot be taken \(y\)"),
        ("printf '\\033]0;x\\007odd\\033[2J words\\n'", r"\(odd words\)"),
        (
            f"printf '{MARK}busy bob@desk\\033[2J since 7\\n'",
            "bob@desk has been working here since 7",
        ),
        ("true", "it did not answer"),
        (
            f"printf '{MARK}busy %s since 7\n' {shlex.quote(lease.who())}",
            "run again when it has ended",
        ),
    ],
)
def test_whatever_a_host_says_comes_to_an_end_in_words_that_can_be_shown(
    run: Any, monkeypatch: pytest.MonkeyPatch, printed: str, words: str
) -> None:
    monkeypatch.setattr(on_host, "program", lambda *_: printed)
    monkeypatch.setattr(lease, "_ANSWER_S", 1.0 if "sleep" in printed else 20.0)
    with pytest.raises(lease.LeaseError, match=words) as raised:
        ensure(run)
    assert str(raised.value).isprintable()


def test_it_is_taken_again_where_it_was_lost(run: Any) -> None:
    ensure(run)
    lost = run[1].connector_data[lease._KEY]
    lost.close()
    gevent.sleep(0.2)
    ensure(run)
    assert run[1].connector_data[lease._KEY] is not lost


def test_options_of_the_command_line_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["pyinfra", "-y", "--data", "token=hunter2", "inventories/lab.py", "tasks/smoke.py"]
    monkeypatch.setattr(sys, "argv", words)
    assert lease.who().endswith(" (pyinfra inventories/lab.py tasks/smoke.py)")
