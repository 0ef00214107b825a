"""What all tests share: their files in memory, and groups of tests that one worker runs.

pytest-xdist runs them in two or three processes. What must be made once for many tests, such as a
lab of throwaway hosts, is made in the process that runs their group.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

MEMORY_GIB = 16
"""Memory that must be free for the tests' files to be in it; two labs take about half of that."""
FIRST_LAB = {
    "across_hosts", "deploy", "faults", "hostile_owner", "locks", "nightly", "smoke_alone", "train",
    "train_units", "training_shapes", "two_operators",
}  # fmt: skip
"""The modules of tests/rehearsal that need two hosts which were deployed to, once for all of them.

The others, which another worker runs, need simulated GPUs or bare hosts.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--no-skips`."""
    parser.addoption(
        "--no-skips", action="store_true", help="fail where a test outside tests/gpu is skipped"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have a folder in memory for temporary files, and start Python itself and no script for it."""
    gc.disable()  # nothing that is found before the first test is ever garbage
    os.environ["PATH"] = f"{Path(sys.base_prefix, 'bin')}{os.pathsep}{os.environ['PATH']}"
    if hasattr(config, "workerinput") or config.option.basetemp or config.option.collectonly:
        return
    place = Path(tempfile.mkdtemp(prefix="gpu-tests-"))
    free = re.search(r"MemAvailable: +(\d+)", Path("/proc/meminfo").read_text())
    if free and int(free[1]) >> 20 >= MEMORY_GIB:
        # It says that it is as large as a disk with room for a driver, a toolkit and torch.
        words = ["mount", "-t", "tmpfs", "-o", "size=64g,mode=0700", "tmpfs", str(place)]
        subprocess.run(words, capture_output=True, check=False)

    def remove() -> None:
        subprocess.run(["umount", "--lazy", place], capture_output=True, check=False)
        subprocess.run(["rm", "-rf", place], check=False)

    config.option.basetemp = str(place / "tests")
    config.add_cleanup(remove)


class _Polled(threading.Event):
    """An event that is waited for by asking again and again.

    gevent, which pyinfra's command line puts in the place of Python's locks, cannot be woken by the
    thread in which a worker of pytest-xdist is told its next test.
    """

    def wait(self, timeout: float | None = None) -> bool:
        while not self.is_set():
            time.sleep(0.002)
        return True


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let a worker hear of its next test."""
    for plugin in session.config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            plugin.torun._has_items_event = _Polled()


class _Groups(LoadScopeScheduling):
    """Gives one worker all tests of a lab, those of a module of tests/on_host, and of tests/gpu."""

    def _split_scope(self, nodeid: str) -> str:
        path = Path(nodeid.partition("::")[0])
        if path.parent.name == "rehearsal":
            own = path.stem.removeprefix("test_") in FIRST_LAB
            return "first lab" if own else "second lab"
        if path.parent.name == "gpu":
            return "gpu"
        whole = path.parent.name == "on_host" or path.stem in ("test_logs", "test_house_layers")
        return str(path) if whole else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Groups:
    """Have pytest-xdist go by these groups; its own loadgroup does nothing with pytest 9.2."""
    return _Groups(config, log)


def pytest_collection_finish() -> None:
    """Leave out of the search for garbage what was found: it stays to the end."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Fail where `--no-skips` was asked for and a test outside tests/gpu was skipped."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.getoption("--no-skips") and reporter is not None:
        skipped = [each.nodeid for each in reporter.stats.get("skipped", [])]
        if any(not each.startswith("tests/gpu/") for each in skipped) and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
    return (yield)
