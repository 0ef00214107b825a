"""How a host's part of a step across hosts ended, and which host's end was the first cause."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..journal import Journal
from . import listens
from .failure import Failure
from .listens import Listens

GONE = "gone"
"""The kind of a host that has left nothing: the controller says that of it."""
KINDS = (
    *("port", GONE, "unreached", "absent", "killed", "raised", "interrupted"),
    *("late", "peer", "stopped", "done"),
)
"""In this order one is the cause of the others: a machine that is gone takes its ranks along, a
rank that is killed makes those of other hosts lose a connection."""
WITH_OUTPUT = ("killed", "raised", "late", "peer")
"""Ends that what the ranks printed may explain."""
_PEER_LOST = re.compile(
    r"connection (?:was )?(?:likely )?(?:closed|reset|refused)|broken pipe|timed? ?out|socket|"
    r"remote (?:process|rank|peer)|unhandled system error",
    re.IGNORECASE,
)
_TAIL_LINES = 30
_TAIL_WIDTH = 300
_SENTENCE = 2000


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


@dataclass(frozen=True)
class Part:
    """What one host's launcher tells of its ranks.

    + host: whose it is; journals: rank -> what the rank wrote down; its times are counted from the
      launcher's start, since each host has a clock of its own
    + logs: rank -> the file there with what it printed; directory: of all files there
    + listens: who could connect to it; None where it did not come so far
    """

    host: str
    end: End
    directory: str = ""
    journals: Mapping[int, Journal] = field(default_factory=dict)
    logs: Mapping[int, str] = field(default_factory=dict)
    listens: Listens | None = None

    def as_json(self, run_id: str) -> dict[str, Any]:
        """Return what the launcher leaves for the controller, of the run `run_id`."""
        return {
            "run_id": run_id,
            "host": self.host,
            "end": asdict(self.end),
            "directory": self.directory,
            "journals": [asdict(journal) for journal in self.journals.values()],
            "logs": {str(rank): log for rank, log in self.logs.items()},
            "listens": self.listens.as_json() if self.listens else None,
        }


def read(text: str, run_id: str) -> Part | None:
    """Return the part in a host's file; None where it is of another run, or not a part."""
    try:
        document = json.loads(text)
        if document["run_id"] != run_id:
            return None
        journals = [Journal(**each) for each in document["journals"]]
        return Part(
            host=str(document["host"]),
            end=_end(document["end"]),
            directory=str(document["directory"]),
            journals={int(each.rank): each for each in journals},
            logs={int(rank): str(log) for rank, log in document["logs"].items()},
            listens=listens.read(document["listens"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        return None


def _end(told: Mapping[str, Any]) -> End:
    """Return an end as a host tells it; what is not understood is a host's that is gone."""
    rank = told["rank"]
    return End(
        kind=told["kind"] if told["kind"] in KINDS else GONE,
        host=str(told["host"]),
        sentence=str(told["sentence"])[:_SENTENCE],
        rank=rank if isinstance(rank, int) else None,
        tail=shortened([str(line) for line in told["tail"]]),
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
