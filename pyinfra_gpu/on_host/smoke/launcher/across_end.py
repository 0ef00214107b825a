"""How a host's part of the step across hosts ended, and which host's end was the first cause."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..journal import Journal
from ..judge.failure import Failure

# In this order one is the cause of the others: a machine that is gone takes its ranks along, a
# rank that is killed makes those of other hosts lose a connection.
KINDS = ("lost", "killed", "raised", "interrupted", "late", "peer", "stopped", "done")
WITH_OUTPUT = ("killed", "raised", "late", "peer")
"""Ends that what the ranks printed may explain."""
_PEER_LOST = re.compile(
    r"connection (?:was )?(?:closed|reset|refused)|broken pipe|timed? ?out|socket|"
    r"remote (?:process|rank|peer)|unhandled system error",
    re.IGNORECASE,
)
_TAIL_LINES = 30
_TAIL_WIDTH = 300


@dataclass(frozen=True)
class End:
    """One host's end. `host` is whom it is about, which is not always who tells it.

    + kind: one of KINDS; "done" is the good one
    + rank: the rank to look at; tail: the last lines that it printed
    """

    kind: str
    host: str
    sentence: str = ""
    rank: int | None = None
    tail: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Return whether this host's ranks did all their work."""
        return self.kind == "done"

    def as_message(self) -> dict[str, Any]:
        """Return what is told to the other hosts; a message's own host is whoever tells it."""
        return {
            "end": self.kind,
            "about": self.host,
            "sentence": self.sentence,
            "rank": self.rank,
            "tail": list(self.tail),
        }


def read(message: Mapping[str, Any]) -> End:
    """Return the end another host tells of; what is not understood is a lost host's."""
    kind, rank, tail = message.get("end"), message.get("rank"), message.get("tail")
    return End(
        kind=kind if kind in KINDS else "lost",
        host=str(message.get("about")),
        sentence=str(message.get("sentence", ""))[:2000],
        rank=rank if isinstance(rank, int) else None,
        tail=shortened(list(map(str, tail))) if isinstance(tail, list) else (),
    )


def shortened(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the last lines, none of them long."""
    return tuple(line[:_TAIL_WIDTH] for line in lines[-_TAIL_LINES:])


def root(ends: Sequence[End]) -> End | None:
    """Return the end that explains the others, None if all are good."""
    bad = [end for end in ends if not end.good]
    return min(bad, key=lambda end: KINDS.index(end.kind)) if bad else None


def of_ranks(host: str, failed: Failure, journals: Mapping[int, Journal]) -> End:
    """Return the end of a host whose torchrun ended before the work was done."""
    journal = journals.get(failed.rank) if failed.rank is not None else None
    if journal is None or journal.error is None:
        kind = "killed"
    else:
        kind = "peer" if _PEER_LOST.search(journal.error) else "raised"
    return End(kind, host, f"on {host}, {failed.sentence}", failed.rank)
