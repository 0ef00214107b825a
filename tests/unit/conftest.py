"""Lanes for these tests and those of tests/fake: shares that run as processes of their own.

And what all of them would otherwise pay for each: a search for garbage among 12,000 tests, and a
`python3` on PATH that first asks itself which one it is.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from tests import memory

LANE_GIB = 4
"""What a lane's files may take; it leaves 100 MB."""
OTHER_SHELLS = ("bash", "busybox")
"""Beside dash, which is `sh` of the hosts that there are: values of the fixture `shell`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--lane N/M`: the N-th of M shares, for M processes beside one another; `--one-shell`."""
    parser.addoption("--lane", metavar="N/M", help="run one of M tests, the N-th share")
    parser.addoption(
        "--one-shell", action="store_true", help="try programs for hosts in dash alone"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Leave garbage until all tests are found, put the real Python on PATH, and files in memory."""
    gc.disable()
    # `nohup` has this ignored, and with it all that tests start and end in that way.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.environ["PATH"] = path()
    if config.getoption("--lane"):  # nobody looks at its files afterwards
        in_memory(config.option.basetemp)


def in_memory(given: str | None) -> None:
    """Keep the temporary files of this process, and of what it starts, in memory.

    + given: the folder that the run was given for them, if any
    """
    place = Path(given).parent if given else Path(tempfile.gettempdir(), "gpu-tests-lane")
    place.mkdir(mode=0o700, exist_ok=True)
    if memory.own_mounts() and memory.mount(place, 0o1777, LANE_GIB):
        os.environ["TMPDIR"] = tempfile.tempdir = str(place)


def path() -> str:
    """Return PATH, with the folder first in which this Python is, where a script stands for it.

    pyenv's takes 0.09 s of a processor for each start, and Python itself 0.016.
    """
    given, own = os.environ["PATH"], Path(sys.base_prefix, "bin")
    found = shutil.which("python3")
    if found is None or not (own / "python3").exists():
        return given
    with Path(found).open("rb") as file:
        return f"{own}{os.pathsep}{given}" if file.read(2) == b"#!" else given


def pytest_collection_finish() -> None:
    """Have what was found looked through for garbage no more: it stays to the end.

    And look seldom: 700 new things are less than one test makes, and garbage that waits is small.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that are asked for alone: of one shell, and of the lane."""
    if config.getoption("--one-shell"):
        keep(config, items, [item for item in items if _shell(item) not in OTHER_SHELLS])
    if (lane := config.getoption("--lane")) is not None:
        keep(config, items, share(lane, items))


def keep(config: pytest.Config, items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    """Leave these alone of all tests that were found."""
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    items[:] = kept


def _shell(item: pytest.Item) -> object:
    return item.callspec.params.get("shell") if hasattr(item, "callspec") else None


def share(lane: str, items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests of the lane, "N/M".

    One of M tests and not whole files: the cases of a table take about the same time each, so
    the lanes end together without anybody's list of what takes how long. The next M begin with
    another lane: of a table with each case for three shells, one lane would have the slow shell's.
    A file that says ONE_LANE is whole: its tests share what takes longer to make than they do.
    Raises UsageError where N is not 1 to M.
    """
    number, _, lanes = lane.partition("/")
    if not (number.isdecimal() and lanes.isdecimal() and 1 <= int(number) <= int(lanes)):
        raise pytest.UsageError(f"--lane {lane}: expected N/M with N from 1 to M, e.g. 1/2")
    groups: dict[object, list[pytest.Item]] = {}
    for place, item in enumerate(items):
        module = getattr(item, "module", None)
        groups.setdefault(module if hasattr(module, "ONE_LANE") else place, []).append(item)
    own = [
        group
        for place, group in enumerate(groups.values())
        if (place + place // int(lanes)) % int(lanes) == int(number) - 1
    ]
    return [item for group in own for item in group]
