"""The rest of a log, asked for the line that decides what a message in it means.

What a person typed after a failure (`df -i`, `nvidia-smi -L`, `getent hosts`), and what the program
printed before it, often tells which of several readings of a message is meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .log import Stream
from .patterns import Pattern

WINDOWS = 20  # in which a line is searched from each end of a stream


@dataclass(frozen=True)
class Told:
    """A line that decides, and what its pattern's groups hold."""

    line: str
    groups: Mapping[str, str | None]


class Elsewhere:
    """All writers' lines of one log."""

    def __init__(self, streams: Sequence[Stream] = ()) -> None:
        self._streams = streams
        self._told: dict[str, Told | None] = {}
        self._differing: dict[str, Told | None] = {}

    def told(self, pattern: Pattern) -> Told | None:
        """Return the first line that the pattern matches, whoever wrote it; None if there is none.

        Where it has groups that compare numbers, they must hold, see `holds`.
        Of several lines it is the last: a table's heading comes before the row that tells.
        """
        if pattern.source not in self._told:
            self._told[pattern.source] = self._search(pattern)
        return self._told[pattern.source]

    def differing(self, pattern: Pattern) -> Told | None:
        """Return the first line whose group `one` is not what an earlier line has there.

        Where it has the group `same`, only lines with one value there are compared. Its groups are
        `one`, the earlier value, and `other`; None if all lines say the same.
        """
        if pattern.source not in self._differing:
            self._differing[pattern.source] = self._compare(pattern)
        return self._differing[pattern.source]

    def _compare(self, pattern: Pattern) -> Told | None:
        first: dict[str | None, str] = {}
        for stream in self._streams:
            for found in pattern.find(stream.text, WINDOWS):
                other = found["one"]
                one = first.setdefault(found.groupdict().get("same"), other)
                if other != one:
                    line = stream.lines[stream.at(found.start("one"))]
                    groups = {**found.groupdict(), "one": one, "other": other}
                    return Told(line.whole.strip(), groups)
        return None

    def _search(self, pattern: Pattern) -> Told | None:
        for stream in self._streams:
            for found in filter(holds, pattern.find(stream.text, WINDOWS)):
                last = stream.at(max(found.start(), found.end() - 1))
                return Told(stream.lines[last].whole.strip(), found.groupdict())
        return None


def holds(found: re.Match[str]) -> bool:
    """Tell whether the match's group `more` is a greater number than `less`, or than twice `half`.

    So is every match without such groups.
    """
    groups = found.groupdict()
    if "more" not in groups:
        return True
    than = int(groups["less"]) if "less" in groups else 2 * int(groups["half"])
    return int(groups["more"]) > than
