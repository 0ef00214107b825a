"""What a run that did not pass leaves for its explanation: the ends of all logs, in one file.

The first entries are of the rank that failed first: whoever looks for a cause reads in order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..files import write_text
from . import hang
from .group import Group, last_lines

FILE = "evidence.json"
_LINES = 400
_BYTES = 64 * 1024
_ALL_BYTES = 480 * 1024
"""Of the file; its reader takes no more than 512 KiB."""

Entry = dict[str, Any]


def entry(source: str, rank: int | None, lines: Sequence[str]) -> Entry:
    """Return one entry with the last of `lines`, at most 400 lines and 64 KiB."""
    text = "\n".join(lines[-_LINES:])
    kept = text.encode(errors="replace")[-_BYTES:].decode(errors="ignore")
    return {"source": source, "rank": rank, "text": kept}


def collect(
    groups: Sequence[Group],
    failed_rank: int | None,
    kernel: Sequence[str] | None,
    remarks: Iterable[str],
) -> list[Entry]:
    """Return the entries, the root cause's first.

    + groups: all that ran, the one that failed last
    + failed_rank: the number in that one of the process to look at, None if not one in particular
    + kernel: the kernel's lines since the test began, None if they could not be read
    + remarks: what the test itself found, a sentence each
    """
    root: list[Entry] = []
    others: list[Entry] = []
    for group in reversed(groups):
        for number in range(group.plan.count):
            is_root = group is groups[-1] and number == failed_rank
            (root if is_root else others).extend(_of_process(group, number))
    starters = [entry("torchrun", None, _read(group.plan.log)) for group in reversed(groups)]
    found = [*root, entry("stage", None, list(remarks)), entry("kernel", None, kernel or [])]
    return _bounded([each for each in (*found, *starters, *others) if each["text"].strip()])


def _of_process(group: Group, number: int) -> list[Entry]:
    """Return what one process left; one that died early has a log and no journal."""
    journal, directory = group.journals.get(number), group.plan.log.parent
    entries = []
    if journal and journal.error:
        entries.append(entry("rank", number, journal.error.splitlines()))
    if log := group.log_of(number):
        entries.append(entry("rank", number, _read(log)))
    nccl = sorted(directory.glob(f"nccl.*.{journal.pid}.log")) if journal else []
    entries.extend(entry("nccl", number, _read(path)) for path in nccl)
    if stack := group.stack_of(number):
        entries.append(entry("stage", number, _read(stack)))
    recordings = [path for path in hang.recordings(directory) if path.name.endswith(f"_{number}")]
    entries.extend(entry("stage", number, hang.recorded(path)) for path in recordings)
    return entries


def _read(path: Path) -> list[str]:
    return last_lines(path, _LINES, _BYTES) if path.exists() else []


def _bounded(entries: Sequence[Entry]) -> list[Entry]:
    """Return as many of `entries`, from the first, as the file may hold."""
    kept, size = [], 0
    for each in entries:
        size += len(json.dumps(each)) + 2
        if size > _ALL_BYTES:
            break
        kept.append(each)
    return kept


def write(directory: Path, entries: Sequence[Entry]) -> Path:
    """Write the file and return its path; raises OSError where that is not possible."""
    path = directory / FILE
    write_text(path, json.dumps(entries, indent=1) + "\n")
    return path
