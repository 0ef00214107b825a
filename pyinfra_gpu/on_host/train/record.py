"""A run's directory as those read it who did not write it: bounded, and never trusted to be whole.

A run may be read while it is written, after a power cut, or after somebody edited it. What is not
as it should be is absent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..terminal import one_line, shortened
from . import rundir
from .errors import TrainError

LARGEST_RECORD = 1 << 20
"""Bytes of a run.json; with every variable of an environment it comes to a twentieth."""

_LONGEST_TEXT = 500  # characters of a field that is shown
_DAY_S = 80_000.0  # less than that, a time of day says enough
_MOST = 200  # entries of a list or a mapping
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

OUTCOMES = ("finished", "failed", "stopped", "lost")


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One start of a run; times are seconds since 1970, None where they are not known."""

    number: int
    started: float | None = None
    ended: float | None = None
    boot_id: str = ""
    resumed_from: str = ""
    exit: int | None = None
    outcome: str = ""
    first_failed_rank: int | None = None
    cause: str = ""
    stopped_by: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What run.json says.

    + overrides: as they were given on the command line, over the preset's own
    + gpus: their UUIDs; empty for a run on the CPU
    + waits: what it waits for before it goes on by itself, and until when; a sentence
    + across: the hosts that train it together, this one among them; empty for one host
    """

    folder: Path
    name: str
    host: str = ""
    preset: str = ""
    overrides: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    nproc: int | None = None
    commit: str = ""
    dirty: bool = False
    unproven: bool = False
    checkpoints: str = ""
    state: str = ""
    attempts: tuple[Attempt, ...] = ()
    waits: str = ""
    across: tuple[str, ...] = ()

    @property
    def last(self) -> Attempt | None:
        """The attempt that runs, or was the last to run."""
        return self.attempts[-1] if self.attempts else None

    @property
    def first_failed_rank(self) -> int | None:
        """The rank that failed first in the last attempt."""
        return self.last.first_failed_rank if self.last else None

    @property
    def over(self) -> bool:
        """Whether nothing runs: it has ended, or its last attempt has and another may follow."""
        return self.state == "ended" or (self.last is not None and self.last.outcome != "")

    @property
    def failed(self) -> bool:
        """Whether it ended, and not as anybody wanted."""
        outcome = self.last.outcome if self.last else ""
        return self.state == "ended" and outcome in ("failed", "lost")

    @property
    def cut_off(self) -> bool:
        """Whether it was lost because the host was started anew: by a power cut, or a reboot."""
        begun = self.last.boot_id if self.last and self.last.outcome == "lost" else ""
        return bool(begun) and (now := boot_id()) != "" and now != begun

    @property
    def unsupervised(self) -> bool:
        """Whether it was lost with its supervisor alone, while the host stayed up."""
        begun = self.last.boot_id if self.last and self.last.outcome == "lost" else ""
        return bool(begun) and boot_id() == begun

    def logs(self) -> list[Path]:
        """Return the logs of the last attempt, rank 0's first."""
        if self.last is None:
            return []
        folder = self.folder / "attempts" / str(self.last.number)
        return sorted(folder.glob("rank*.log"), key=lambda path: (rank_of(path) or 0, path.name))


def settled_run(folder: Path) -> Run | None:
    """Return a run; one whose supervisor is gone has ended, and its record says so from here on."""
    with suppress(TrainError, OSError, KeyError, IndexError, TypeError, AttributeError):
        # What it returns, and not what stands there: on a full disk it could not be written.
        return _of(folder, rundir.Run(folder).settled())
    return read_run(folder)


def read_run(folder: Path) -> Run | None:
    """Return a run; None where its directory holds no record of one."""
    try:
        with (folder / "run.json").open("rb") as file:
            return _of(folder, json.loads(file.read(LARGEST_RECORD)))
    except (OSError, ValueError, RecursionError):
        return None


def _of(folder: Path, told: object) -> Run | None:
    if not isinstance(told, dict):
        return None
    attempts = [_attempt(each) for each in _list(told.get("attempts")) if isinstance(each, dict)]
    overrides = told.get("overrides")
    pairs = list(overrides.items())[:_MOST] if isinstance(overrides, dict) else []
    return Run(
        folder=folder,
        name=_text(told.get("run")) or folder.name,
        host=_text(told.get("host")),
        preset=_text(told.get("preset")),
        overrides={_text(name): _text(value) for name, value in pairs},
        command=tuple(_text(each) for each in _list(told.get("command"))),
        gpus=tuple(_text(each) for each in _list(told.get("gpus")) if each != "cpu"),
        nproc=_whole(told.get("nproc")),
        commit=_text(told.get("commit")),
        dirty=told.get("dirty") is True,
        unproven=told.get("unproven") is True,
        checkpoints=_text(told.get("checkpoints")),
        state=_one_of(told.get("state"), rundir.STATES),
        attempts=tuple(attempts),
        waits=_waits(told),
        across=tuple(_text(each) for each in _list(told.get("across"))),
    )


def moment(value: object) -> float | None:
    """Return an ISO 8601 moment as seconds since 1970."""
    try:
        when = datetime.fromisoformat(str(value)[:40])
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def boot_id() -> str:
    """Return which start of this host this is; empty where it would not tell."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def rank_of(log: Path) -> int | None:
    """Return whose log this is by its name, rank<N>.log."""
    digits = log.name.removeprefix("rank").partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 6 else None


def tail_of(path: Path, size: int) -> list[str]:
    """Return the last lines of a file, of at most so many bytes; the first may be a part of one."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(0, end - size))
            data = file.read(size)
    except OSError:
        return []
    return data.decode("utf-8", "replace").splitlines()


def unstamped(line: str) -> tuple[str, str]:
    """Return when a line of a log was written, in local time or empty, and the line itself."""
    stamp, blank, rest = line.partition(" ")
    when = moment(stamp) if blank and len(stamp) <= 32 and stamp.endswith("Z") else None
    if when is None:
        return "", line
    return time.strftime("%H:%M:%S", time.localtime(when)), rest


def _attempt(told: Mapping[str, Any]) -> Attempt:
    return Attempt(
        number=_whole(told.get("number")) or 1,
        started=moment(told.get("started")),
        ended=moment(told.get("ended")),
        boot_id=_text(told.get("boot_id")),
        resumed_from=_text(told.get("resumed_from")),
        exit=_whole(told.get("exit")),
        outcome=_one_of(told.get("outcome"), OUTCOMES),
        first_failed_rank=_whole(told.get("first_failed_rank")),
        cause=_text(told.get("cause")),
        stopped_by=_text(told.get("stopped_by")),
    )


def _waits(told: Mapping[str, Any]) -> str:
    waits = told.get("waits")
    state = told.get("state")
    if state not in ("waiting", "ended") or not isinstance(waits, dict):
        return ""
    until = moment(waits.get("until"))
    soon = until is not None and until - time.time() < _DAY_S
    form = " until %H:%M:%S" if soon else " until %Y-%m-%d %H:%M"
    at = time.strftime(form, time.localtime(until)) if until is not None else ""
    verb = "it waits" if state == "waiting" else "it waited in vain"
    return f"{verb}{at} for {_text(waits.get('for'))}"


def _text(value: object) -> str:
    if isinstance(value, str):
        return shortened(one_line(value[: _LONGEST_TEXT * 4]), _LONGEST_TEXT)
    return str(value)[:40] if isinstance(value, int | float) else ""


def _whole(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31
    return value if whole else None  # type: ignore[return-value]


def _list(value: object) -> list[object]:
    return value[:_MOST] if isinstance(value, list) else []


def _one_of(value: object, words: tuple[str, ...]) -> str:
    return value if isinstance(value, str) and value in words else ""
