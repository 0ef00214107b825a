"""The rest of a log, asked for the line that decides what a message in it means.

What a person typed after a failure (`df -i`, `nvidia-smi -L`, `getent hosts`), and what the program
printed before it, often tells which of several readings of a message is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .log import Stream
from .patterns import Pattern, together

WINDOWS = 20  # in which a line is searched from each end of a stream


@dataclass(frozen=True)
class Told:
    """A line that decides, and what its pattern's groups hold.

    + stream, index: where the line stands
    """

    line: str
    groups: Mapping[str, str | None]
    stream: Stream
    index: int


class Elsewhere:
    """All writers' lines of one log."""

    def __init__(self, streams: Sequence[Stream] = ()) -> None:
        self._streams = streams
        self._told: dict[tuple[str, str], Told | None] = {}
        self._differing: dict[str, Told | None] = {}

    def told(
        self, pattern: Pattern, also: Pattern | None, groups: Mapping[str, str | None]
    ) -> Told | None:
        """Return the first line that the pattern matches, whoever wrote it; None if there is none.

        Its groups, and those of `also`, must agree, see `together`. Of several lines it is the
        last: a table's heading comes before the row that tells.

        + also: what another line must have as well, anywhere; its groups are added
        + groups: of the message that is asked about, for what both ask of it
        """
        about, beside = pattern.about(groups), also.about(groups) if also else None
        if about is None or (also and not beside):
            return None
        return self._of(about, beside)

    def _of(self, pattern: Pattern, also: Pattern | None) -> Told | None:
        asked = (pattern.source, also.source if also else "")
        if asked not in self._told:
            self._told[asked] = self._search(pattern, also)
        return self._told[asked]

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
        for stream, found in self._all(pattern):
            other = found["one"]
            one = first.setdefault(found.groupdict().get("same"), other)
            if other != one:
                at = stream.at(found.start("one"))
                groups = {**found.groupdict(), "one": one, "other": other}
                return Told(stream.lines[at].whole.strip(), groups, stream, at)
        return None

    def _search(self, pattern: Pattern, also: Pattern | None) -> Told | None:
        others = list(self._all(also)) if also else []
        for stream, found in self._all(pattern):
            groups = found.groupdict()
            for beside in [other.groupdict() for _, other in others] if also else [{}]:
                if together(groups, beside):
                    last = stream.at(max(found.start(), found.end() - 1))
                    return Told(stream.lines[last].whole.strip(), groups | beside, stream, last)
        return None

    def _all(self, pattern: Pattern) -> Iterator[tuple[Stream, re.Match[str]]]:
        for stream in self._streams:
            for found in pattern.find(stream.text, WINDOWS):
                yield stream, found
