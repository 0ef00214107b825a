"""What torchrun says at the end of a failed run: which rank it saw fail first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .log import Line

ROOT_CAUSE = "Root Cause (first observed failure):"
_ITEM = re.compile(r"\[\d{1,6}\]:$")
_RANK = re.compile(r"rank\s{0,20}:\s{0,4}(\d{1,6})\b")
_CODE = re.compile(r"exitcode\s{0,20}:\s{0,4}(-?\d{1,4})\b")
_TIME = re.compile(r"time\s{0,20}:\s{0,4}(\S{1,40})")
_END = re.compile(r"={10,}$")
# Printed before the summary, which a cut log may not hold any more.
_FAILED = re.compile(
    r"failed \(exitcode: (-?\d{1,4})\) local_rank: (\d{1,4}) \(pid: \d{1,9}\) of binary"
)
_LONGEST_HEAD = 6  # lines of an item before its traceback: time, host, rank, exitcode, error_file
_TERMINATED = -15  # by torchrun, because another rank had failed


@dataclass(frozen=True)
class Summary:
    """The rank that torchrun saw fail first.

    + told: all ranks that its summaries tell of, which are those of their hosts; empty where the
      log holds no summary any more
    """

    rank: int
    exit_code: int | None
    told: frozenset[int] = frozenset()


def attributed(lines: Sequence[Line]) -> tuple[list[Line], Summary | None]:
    """Give each line of torchrun's summary to the rank it tells about.

    Returns the lines, and the rank that failed first: of several (each node's launcher names its
    own) the earliest, and one that torchrun itself did not end, where there is one.
    """
    result = list(lines)
    found: list[tuple[bool, str, Summary]] = []
    early: Summary | None = None
    told: set[int] = set()
    place = 0
    while place < len(result):
        text = result[place].text.strip()
        if _ITEM.match(text):
            before = place
            place, item = _item(result, place)
            found += [item] if item else []
            told |= {line.rank for line in result[before:place] if line.rank is not None}
            continue
        if early is None and (failed := _FAILED.match(text)):
            early = Summary(int(failed[2]), int(failed[1]))
        place += 1
    first = min(found, key=lambda item: item[:2], default=None)
    summary = first[2] if first else early
    return result, replace(summary, told=frozenset(told)) if summary else None


def ends_item(text: str) -> bool:
    """Tell whether this line of the summary closes what it tells about one rank."""
    return bool(_END.match(text) or _ITEM.match(text) or text == ROOT_CAUSE)


def _item(lines: list[Line], start: int) -> tuple[int, tuple[bool, str, Summary] | None]:
    """Read one rank's part of the summary; return where it ends, and it if it is the root."""
    is_root = start > 0 and lines[start - 1].text.strip() == ROOT_CAUSE
    rank = code = None
    time = ""
    end = start + 1
    while end < len(lines) and not ends_item(lines[end].text.strip()):
        if end - start <= _LONGEST_HEAD:
            text = lines[end].text.strip()
            rank = int(found[1]) if rank is None and (found := _RANK.match(text)) else rank
            code = int(found[1]) if code is None and (found := _CODE.match(text)) else code
            time = found[1] if not time and (found := _TIME.match(text)) else time
        end += 1
    if rank is None:
        return start + 1, None
    for place in range(start, end):
        lines[place] = replace(lines[place], rank=rank)
    return end, (code == _TERMINATED, time, Summary(rank, code)) if is_root else None
