"""What runs the tests: lanes beside one another, honest counts, and nothing left at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from benchmarks import suite_times
from tests import memory, processor, suite
from tests.unit import conftest

PROJECT = Path(__file__).resolve().parents[2]
PROGRAM = """
import signal, sys
from pathlib import Path
from tests import suite
folder = Path(sys.argv[1])
suite.LOGS = folder / "lanes"
lanes = [suite.Lane(path.stem, (str(path),)) for path in sorted(folder.glob("test_*.py"))]
try:
    ended = suite.run(lanes, 2)
except KeyboardInterrupt:
    sys.exit(suite.INTERRUPTED)
sys.exit(0 if suite.report(ended, 61.0) else 1)
"""
SLEEPER = """
import os, subprocess, pathlib
def test_that_starts_a_program():
    program = subprocess.Popen(["sleep", "1000"])
    pathlib.Path(__file__).with_suffix(".pid").write_text(f"{program.pid}")
"""


def start(folder: Path, **files: str) -> subprocess.Popen[str]:
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def gone(pid: int) -> bool:
    """Whether a process has ended within ten seconds; what nobody has waited for counts too."""
    limit = time.monotonic() + 10
    while time.monotonic() < limit:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_every_lane_is_shown_whole_and_the_last_line_counts_all(tmp_path: Path) -> None:
    process = start(
        tmp_path,
        a="def test_1(): pass\ndef test_2(): pass\n",
        b="def test_1(): assert 'this one' == 'is wrong'\n",
        c="import nosuchmodule\n",
    )
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert output.splitlines()[-1] == "2 passed, 2 failed, 0 skipped in 1 min 01 s"
    assert "test_a passed after" in output
    assert "test_b FAILED (exit code 1) after" in output
    assert "'this one' == 'is wrong'" in output
    assert "No module named 'nosuchmodule'" in output


def test_what_is_compiled_is_kept_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("HOME", "/home/me")
    environment = suite._environment()
    assert "PYTHONDONTWRITEBYTECODE" not in environment
    assert environment["HOME"] == "/home/me"


LOG = """platform linux -- Python 3.11.7
collected 188 items / 97 deselected / 91 selected

tests/rehearsal/test_bad_repository.py .............                     [ 14%]
tests/rehearsal/test_deploy.py ..F.s"""


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("platform linux -- Python 3.11.7\n", "begins"),
        ("collected 3 items\n\ntests/unit/test_a.py ..", "2 of 3"),
        (LOG, "18 of 91, 1 failed"),
        (LOG.replace("..F.s", "....s...") + "\n.E", "23 of 91, 1 failed"),
        ("collected 1 item\n\n", "0 of 1"),
    ],
)
def test_it_is_said_how_many_tests_have_ended_while_a_file_goes_on(log: str, told: str) -> None:
    assert suite.progress(log) == told


def test_whatever_is_skipped_in_silence_fails_the_run(tmp_path: Path) -> None:
    process = start(tmp_path, a="import pytest\ndef test_1(): pytest.skip('busybox is not here')\n")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "busybox is not here" in output.splitlines()[-2]
    assert output.splitlines()[-1].startswith("0 passed, 0 failed, 1 skipped")


def test_a_lane_without_tests_or_without_a_result_fails(tmp_path: Path) -> None:
    process = start(tmp_path, a="", b="import os\ndef test_1(): os._exit(0)\n")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert output.count(" FAILED (") == 2


def test_what_a_test_left_running_ends_with_its_lane(tmp_path: Path) -> None:
    process = start(tmp_path, a=SLEEPER)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert gone(int((tmp_path / "test_a.pid").read_text()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_every_lane(number: signal.Signals, tmp_path: Path) -> None:
    waits = f"{SLEEPER}    program.wait()\n"
    process = start(tmp_path, a=waits, b=waits)
    files = [tmp_path / f"test_{name}.pid" for name in "ab"]
    limit = time.monotonic() + 240
    while not all(file.exists() and file.read_text() for file in files):
        assert time.monotonic() < limit, "the lanes did not start"
        time.sleep(0.05)
    os.kill(process.pid, number)
    process.communicate(timeout=240)  # lanes have 70 s each, should they be deaf
    assert process.returncode == 130
    assert all(gone(int(file.read_text())) for file in files)


@pytest.mark.parametrize(
    ("available", "user", "kept"), [(20, 0, True), (10, 0, False), (20, 1000, False)]
)
def test_hosts_are_kept_in_memory_where_there_is_room_and_they_are_roots(
    available: int, user: int, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []
    monkeypatch.setattr(suite.memory, "available_gib", lambda: available)
    monkeypatch.setattr(suite.memory, "mount", lambda *given: not done.append(given))
    monkeypatch.setattr(suite.memory, "unmount", lambda place: done.append((place,)))
    monkeypatch.setattr(suite.os, "geteuid", lambda: user)
    with suite.in_memory(tmp_path):
        assert done == ([(tmp_path, 0o700, 64)] if kept else [])
    assert done[1:] == ([(tmp_path,)] if kept else [])


def test_what_is_available_of_memory_is_what_the_kernel_says(tmp_path: Path) -> None:
    said = tmp_path / "meminfo"
    said.write_text("MemTotal:  32000000 kB\nMemAvailable:  10485760 kB\n")
    assert memory.available_gib(said) == 10
    assert memory.available_gib(tmp_path / "none") == 0


@dataclass(eq=False)
class Case:
    """What is asked of a test that pytest has found with parameters."""

    name: str
    callspec: SimpleNamespace


def of_lane(lane: str, items: list[Any]) -> list[Any]:
    return conftest.share(lane, items)


def test_lanes_share_all_tests_and_none_twice() -> None:
    shares = [item for lane in ("1/3", "2/3", "3/3") for item in of_lane(lane, [*range(10)])]
    assert sorted(shares) == list(range(10))


def test_a_lane_has_the_cases_of_each_shell() -> None:
    items = [f"{case}-{shell}" for case in range(9) for shell in ("bash", "busybox", "dash")]
    shells = [item.partition("-")[2] for item in of_lane("1/3", items)]
    assert [shells.count(each) for each in ("bash", "busybox", "dash")] == [3, 3, 3]


def test_programs_for_hosts_are_tried_in_one_shell_where_that_is_asked_for() -> None:
    each: dict[str, dict[str, str]] = {"a test": {}, "another": {"case": "bash"}}
    each |= {f"a program in {shell}": {"shell": shell} for shell in ("bash", "busybox", "dash")}
    items: list[Any] = [Case(name, SimpleNamespace(params=given)) for name, given in each.items()]
    dropped: list[Any] = []
    given = {"--one-shell": True, "--lane": None}
    config: Any = SimpleNamespace(
        getoption=given.__getitem__,
        hook=SimpleNamespace(pytest_deselected=lambda items: dropped.extend(items)),
    )
    conftest.pytest_collection_modifyitems(config, items)
    assert [item.name for item in items] == ["a test", "another", "a program in dash"]
    assert len(dropped) == 2


@dataclass(eq=False)
class Item:
    """What is asked of a test that pytest has found."""

    module: ModuleType
    name: str


def test_a_file_whose_tests_share_what_takes_long_is_in_one_lane() -> None:
    whole, other = ModuleType("whole"), ModuleType("other")
    whole.ONE_LANE = True  # type: ignore[attr-defined]
    tests = [Item(other, f"other {number}") for number in range(6)]
    tests[3:3] = [Item(whole, f"whole {number}") for number in range(4)]
    shares = [[item.name for item in of_lane(lane, list(tests))] for lane in ("1/2", "2/2")]
    assert shares == [
        ["other 0", "whole 0", "whole 1", "whole 2", "whole 3", "other 3"],
        ["other 1", "other 2", "other 4", "other 5"],
    ]


@pytest.mark.parametrize(
    ("which", "number", "asked"), [("quick", 3, ("--one-shell",)), ("all", 2, ())]
)
def test_each_lane_of_unit_and_fake_has_a_share_of_its_own(
    which: str, number: int, asked: tuple[str, ...]
) -> None:
    units = [lane for lane in suite.lanes(which, 2) if lane.name.startswith("unit")]
    assert [lane.arguments for lane in units] == [
        ("tests/unit", "tests/fake", *asked, "--lane", f"{n}/{number}")
        for n in range(1, number + 1)
    ]
    assert len({lane.name for lane in units}) == number


@pytest.mark.parametrize(("number", "queues"), [(1, [""]), (2, ["rehearsal"] * 2)])
def test_lanes_on_hosts_share_a_queue_where_there_are_several(
    number: int, queues: list[str]
) -> None:
    hosts = [lane for lane in suite.lanes("all", number) if "tests/rehearsal" in lane.arguments]
    assert [lane.queue for lane in hosts] == queues
    assert all("tests/rehearsal" in lane.arguments for lane in suite.lanes("all", number)[:number])


@pytest.mark.parametrize("lane", ["0/2", "3/2", "1", "a/b", ""])
def test_a_lane_that_is_none_is_an_error(lane: str) -> None:
    with pytest.raises(pytest.UsageError, match="expected N/M"):
        conftest.share(lane, [])


BURNS = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"


def test_what_a_program_takes_of_a_processor_counts_while_it_runs_and_when_it_has_ended() -> None:
    clock = processor.Clock(Path("/nowhere"))
    before = clock.seconds()
    program = subprocess.Popen(
        [sys.executable, "-I", "-c", BURNS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert program.stdout is not None
    program.stdout.readline()
    assert clock.seconds() - before > 0.15
    program.communicate(b"\n")
    assert clock.seconds() - before > 0.15


def test_what_a_lab_took_counts_where_it_is_below_the_folder_and_when_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labs = {}
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpu.stat").write_text("usage_usec 5000000000\nuser_usec 7\n")
        labs[name] = {"directory": str(tmp_path / name), "group": str(tmp_path / name)}
    monkeypatch.setattr(processor.Machine, "labs", lambda _: labs)
    clock = processor.Clock(tmp_path / "ours")
    assert 5000 <= clock.seconds() < 10000
    del labs["ours"]
    assert 5000 <= clock.seconds() < 10000


RESULTS = """<testsuites><testsuite>
<testcase classname="tests.rehearsal.test_b" time="3.0"><properties>
<property name="processor" value="2.5"/></properties></testcase>
<testcase classname="tests.rehearsal.test_a.Group" time="1.0"><properties>
<property name="processor" value="4.0"/></properties></testcase>
<testcase classname="tests.unit.test_c" time="0.5"/>
<testcase classname="tests.rehearsal.test_b" time="1.0"/>
</testsuite></testsuites>"""


def test_the_table_of_files_begins_with_what_takes_most_of_a_processor(tmp_path: Path) -> None:
    (tmp_path / "lane.xml").write_text(RESULTS)
    table = [
        (file, str(taken))
        for file, taken in suite_times.rows(suite_times.times(tmp_path / "lane.xml"))
    ]
    assert table == [
        ("tests/rehearsal/test_a.py", "1 | 1 | 4"),
        ("tests/rehearsal/test_b.py", "2 | 4 | 2"),
        ("1 files below 1 s", "1 | 0 | "),
    ]
