"""What a process writes down while it measures: one JSON object a line, followed by the launcher.

A line is written by one system call, so a reader sees whole lines, in order, up to the moment a
process dies. Times are CLOCK_MONOTONIC, which all processes of a host share.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HOST = -1
"""The number of the host's own journal, to which torchrun and the launcher add."""


def file_of(directory: Path, number: int) -> Path:
    """Return the journal of a rank, or of torchrun."""
    return directory / ("torchrun.jsonl" if number == HOST else f"rank{number}.jsonl")


class Writer:
    """The side of the process that measures."""

    def __init__(self, directory: Path, number: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(file_of(directory, number), flags, 0o644)
        self._write(pid=os.getpid(), local_rank=int(os.environ.get("LOCAL_RANK", str(number))))

    def _write(self, **content: Any) -> None:
        os.write(self._file, json.dumps(content).encode() + b"\n")

    def step(self, name: str) -> None:
        """Say what comes next, so that a process that stops there is seen to have stopped there."""
        self._write(step=name)

    def fact(self, name: str, value: Any, seconds: float = 0.0) -> None:
        """Record what was measured."""
        self._write(fact=name, value=value, seconds=round(seconds, 4))

    @contextmanager
    def measuring(self, name: str) -> Iterator[dict[str, Any]]:
        """Collect the fact `name` in the dict that is handed out, with the time it took."""
        self.step(name)
        value: dict[str, Any] = {}
        began = time.monotonic()
        yield value
        self.fact(name, value, time.monotonic() - began)

    def error(self, error: BaseException) -> None:
        """Record the exception that ends this process."""
        text = f"{type(error).__name__}: {error}".strip()[:2000]
        self._write(error=text, error_time=time.monotonic())

    def finished(self) -> None:
        """Say that all work is done."""
        self._write(finished=True)


@dataclass
class Journal:
    """What is known of one process."""

    rank: int
    pid: int = 0
    local_rank: int = 0
    steps: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    error_time: float = 0.0
    finished: bool = False
    read: int = 0

    @property
    def step(self) -> str:
        """Return what the process was last seen doing."""
        return self.steps[-1] if self.steps else "start"

    def has(self, facts: Iterable[str]) -> bool:
        """Return whether it has recorded all these facts."""
        return all(each in self.facts for each in facts)

    def add(self, facts: Mapping[str, Any], began: float) -> None:
        """Add what the launcher itself found since `began`."""
        self.facts.update(facts)
        self.seconds.update(dict.fromkeys(facts, round(time.monotonic() - began, 4)))

    def follow(self, path: Path) -> bool:
        """Take in what was appended since the last call; return whether there was anything."""
        with path.open("rb") as file:
            file.seek(self.read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]  # a line cut short by a full disk is never taken
        self.read += len(whole)
        for line in map(json.loads, whole.splitlines()):
            if "step" in line:
                self.steps.append(line["step"])
            elif "fact" in line:
                self.facts[line["fact"]] = line["value"]
                self.seconds[line["fact"]] = line["seconds"]
            else:
                vars(self).update(line)
        return bool(whole)
