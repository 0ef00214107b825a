"""A rank's journal: one JSON object a line, appended by the rank and followed by the launcher.

A line is written by one system call, so whoever reads sees whole lines, in order, up to the
moment a rank dies. Times are CLOCK_MONOTONIC, which all processes of a host share.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RANK = "rank"
"""Whose journal it is, in the file's name: a rank's ..."""
SINGLE = "single"
"""... or that of the process that tries one device."""


class Writer:
    """The side of the rank, or of another process (`kind`) that writes down what it measures."""

    def __init__(self, directory: Path, rank: int, kind: str = RANK) -> None:
        path = directory / f"{kind}{rank}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o644)
        self._step = "start"

    def _append(self, kind: str, **content: Any) -> None:
        line = json.dumps({"kind": kind, "time": time.monotonic(), **content})
        os.write(self._file, line.encode() + b"\n")

    def started(self, **content: Any) -> None:
        """Say that this process lives; `content` is what is known before torch is imported."""
        self._append("started", **content)

    def step(self, name: str) -> None:
        """Say what comes next, so that a rank that stops there is seen to have stopped there."""
        self._step = name
        self._append("step", name=name)

    def fact(self, name: str, value: Any, seconds: float) -> None:
        """Record what was measured."""
        self._append("fact", name=name, value=value, seconds=round(seconds, 4))

    @contextmanager
    def measuring(self, name: str) -> Iterator[dict[str, Any]]:
        """Collect the fact `name` in the dict that is handed out, with the time it took."""
        self.step(name)
        value: dict[str, Any] = {}
        began = time.monotonic()
        yield value
        self.fact(name, value, time.monotonic() - began)

    def error(self, error: BaseException) -> None:
        """Record the exception that ends this rank."""
        text = f"{type(error).__name__}: {error}"
        self._append("error", step=self._step, error=text.strip()[:2000])

    def finished(self) -> None:
        """Say that all work is done."""
        self._append("finished")


@dataclass
class Journal:
    """What the launcher knows of one rank."""

    rank: int
    pid: int = 0
    local_rank: int | None = None
    """Its number among those of one host; None where that is its rank."""
    started: float | None = None
    steps: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    error_time: float | None = None
    finished: bool = False
    gone: float | None = None
    """When the launcher first saw that the process had ended."""

    @property
    def step(self) -> str:
        """Return what the rank was last seen doing."""
        return self.steps[-1] if self.steps else "start"

    def take(self, line: dict[str, Any]) -> None:
        """Take one line of the journal in."""
        kind = line["kind"]
        if kind == "started":
            self.started, self.pid = line["time"], line["pid"]
            self.local_rank = line.get("local_rank")
        elif kind == "step":
            self.steps.append(line["name"])
        elif kind == "fact":
            self.facts[line["name"]] = line["value"]
            self.seconds[line["name"]] = line["seconds"]
        elif kind == "error":
            self.error, self.error_time = line["error"], line["time"]
        elif kind == "finished":
            self.finished = True


class Reader:
    """Follows the journals of all ranks in a directory, or of all processes of another `kind`."""

    def __init__(self, directory: Path, kind: str = RANK) -> None:
        self._directory = directory
        self._kind = kind
        self._offsets: dict[int, int] = {}
        self.journals: dict[int, Journal] = {}

    def follow(self) -> bool:
        """Read what was appended since the last call; return whether there was anything."""
        news = False
        for path in sorted(self._directory.glob(f"{self._kind}*.jsonl")):
            rank = int(path.stem.removeprefix(self._kind))
            news = self._follow_one(path, rank) or news
        return news

    def _follow_one(self, path: Path, rank: int) -> bool:
        with path.open("rb") as file:
            file.seek(self._offsets.get(rank, 0))
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]  # a line cut short by a full disk is never taken
        self._offsets[rank] = self._offsets.get(rank, 0) + len(whole)
        journal = self.journals.setdefault(rank, Journal(rank))
        for line in whole.splitlines():
            journal.take(json.loads(line))
        return bool(whole)
