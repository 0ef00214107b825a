"""Measures what each test takes of a processor: a plugin of pytest, for the lanes with hosts.

    python -m pytest -p tests.processor tests/on_host --junitxml=...

Where several lanes share two cores, seconds of a clock say who else was at work. Each test gets
the property "processor" in its JUnit file, in seconds; what it shares with others is the first
one's. benchmarks/suite_times.py reads them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pyinfra_gpu_rehearsal.state import Machine

PROPERTY = "processor"
_TICKS = os.sysconf("SC_CLK_TCK")
_USED = slice(14 - 3, 18 - 3)
"""In /proc/PID/stat behind the name: its own and its ended children's, user's and system's."""


@dataclass
class Clock:
    """The seconds of a processor that this process, all it started, and its labs have taken.

    + folder: labs below it are its own
    """

    folder: Path
    _groups: dict[str, float] = field(default_factory=dict)

    def seconds(self) -> float:
        """Return the seconds so far; what a lab took last of all before its end may be missing."""
        self._groups |= dict(self._of_labs())
        return _of_tree(os.getpid()) + sum(self._groups.values())

    def _of_labs(self) -> Iterator[tuple[str, float]]:
        """Yield the id of each lab that is there, and its seconds."""
        for lab_id, lab in Machine().labs().items():
            if not Path(str(lab["directory"])).is_relative_to(self.folder):
                continue
            try:
                text = Path(str(lab["group"]), "cpu.stat").read_text()
            except OSError:  # it is being taken down
                continue
            words = text.split()
            yield lab_id, int(words[words.index("usage_usec") + 1]) / 1e6


def _of_tree(pid: int) -> float:
    """Return the seconds of a process, of its children and theirs; 0 where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        tasks = [*Path(f"/proc/{pid}/task").iterdir()]
        children = [each for task in tasks for each in (task / "children").read_text().split()]
    except OSError:
        return 0.0
    own = sum(map(int, fields[_USED])) / _TICKS
    return own + sum(_of_tree(int(child)) for child in children)


class PerTest:
    """Notes the seconds of each test."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.at = 0.0

    def pytest_collection_finish(self) -> None:
        """Begin with the first test: to find them all is nobody's."""
        self.at = self.clock.seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        """Note it with the last report of a test, which is that of its end."""
        if call.when == "teardown":
            before, self.at = self.at, self.clock.seconds()
            item.user_properties.append((PROPERTY, f"{self.at - before:.2f}"))
        return (yield)


def clock_of(config: pytest.Config) -> Clock:
    """Return the clock of a run of pytest, whose labs are below its temporary folder."""
    folder = config.option.basetemp
    return Clock(Path(folder).resolve() if folder else Path("/"))


def pytest_configure(config: pytest.Config) -> None:
    """Begin to measure."""
    config.pluginmanager.register(PerTest(clock_of(config)))
