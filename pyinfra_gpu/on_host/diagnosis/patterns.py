"""Searching a log for one message, in bounded time whatever the log holds.

A regular expression is only run near its anchor, a piece of text that every match contains.
Looking for the anchor is linear; the rest is a bounded number of windows of fixed size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise

BEFORE, AFTER = 200, 600  # characters around an anchor in which its message stands
SHORTEST_ANCHOR = 6
LONG = 50_000  # characters of a text: of shorter ones, to look for every anchor is quicker
_PIECE, _STEP = 4, 3  # characters, and from the start of one piece to that of the next

_QUANTIFIERS = ("?", "*", "+", "{")
_ABOUT = re.compile(r"<<([a-z_]{1,40})>>")
_ESCAPED_LITERAL = re.compile(r"[^\w\s]")
# An escape; a class, where a bracket right after the opening one (or its ^) is a member; a bound;
# a run of plain characters; or one character that means something.
_PART = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d{0,4},?\d{0,4}\}|[^\\\[\](){}|.^$*+?]+|.", re.DOTALL
)
_PLAIN = re.compile(r"[^\\\[\](){}|.^$*+?]")


class PatternError(ValueError):
    """A pattern of the catalogue cannot be used; the message is the end of a sentence."""


@dataclass(frozen=True)
class Pattern:
    """One message as a regular expression, with the longest text that all its matches contain.

    `<<name>>` in it stands for what another message has as its group of that name, see `about`.
    """

    source: str
    anchor: str

    def about(self, groups: Mapping[str, str | None]) -> Pattern | None:
        """Return the pattern with another message's values; None where one took no part there.

        + groups: that message's
        """
        values = {name: groups.get(name) for name in _ABOUT.findall(self.source)}
        if not all(values.values()):
            return None
        return _about(self, tuple((name, value or "") for name, value in values.items()))

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """What is searched for near the anchor; most logs need few of them."""
        return re.compile(_spaces_match_line_breaks(self.source), re.MULTILINE)

    def find(self, text: Text, limit: int) -> Iterator[re.Match[str]]:
        """Return the matches in `text`, in order.

        + limit: windows to look into from each end of the text, where there are that many anchors
        """
        end = 0
        for place in text.occurrences(self.anchor, limit):
            if place < end:
                continue
            stop = place + len(self.anchor) + AFTER
            found = self.regex.search(text.lines, max(end, place - BEFORE), stop)
            while found and found.end() <= place:  # another one, before the anchor
                found = self.regex.search(text.lines, found.end(), stop)
            if found:
                end = found.end()
                yield found


class Text:
    """Lines to search; a space of a pattern also matches the break between two lines."""

    def __init__(self, lines: str) -> None:
        self.lines = lines
        self._flat = lines.replace("\n", " ")

    def holding(self, anchors: Iterable[str]) -> frozenset[str]:
        """Return those of the anchors that stand in the text.

        Of a long one its pieces are noted first: most anchors have such as stand nowhere in it, and
        need not be looked for from its begin to its end.
        """
        flat = self._flat
        if len(flat) >= LONG:
            pieces = {flat[place : place + _PIECE] for place in range(0, len(flat), _STEP)}
            anchors = [anchor for anchor in anchors if _made_of(anchor, pieces)]
        return frozenset(anchor for anchor in anchors if anchor in flat)

    def occurrences(self, anchor: str, limit: int) -> list[int]:
        """Return where `anchor` starts, in order: the first and the last `limit` places."""
        first: list[int] = []
        place = self._flat.find(anchor)
        while place >= 0 and len(first) < limit:
            first.append(place)
            place = self._flat.find(anchor, place + 1)
        if place < 0:
            return first
        last: list[int] = []
        place = self._flat.rfind(anchor)
        while place > first[-1] and len(last) < limit:
            last.append(place)
            place = self._flat.rfind(anchor, 0, place + len(anchor) - 1)
        return first + last[::-1]


def _made_of(anchor: str, pieces: set[str]) -> bool:
    """Tell whether a text with these pieces may hold the anchor, wherever in a piece it begins."""
    return any(
        all(
            anchor[place : place + _PIECE] in pieces
            for place in range(start, len(anchor) - _PIECE + 1, _STEP)
        )
        for start in range(_STEP)
    )


def together(one: Mapping[str, str | None], other: Mapping[str, str | None]) -> bool:
    """Tell whether two lines, by the groups of their patterns, decide together.

    + other: of the second line; empty where only one is asked for

    What both call `same` must be equal, and the number `more` greater than what it stands beside:
    `less`, twice `half`, what is counted from 0 up to `last`, or how many `listed` has between its
    commas.
    """
    if "same" in one and other.get("same", one["same"]) != one["same"]:
        return False
    groups = {**one, **other}
    if "more" not in groups:
        return True
    more, less, half, last = (
        int(groups.get(name) or 0) for name in ("more", "less", "half", "last")
    )
    if "listed" in groups:
        return more > len((groups["listed"] or "").split(","))
    return more > (less if "less" in groups else 2 * half if "half" in groups else last + 1)


def pattern(source: str) -> Pattern:
    """Return `source` ready to search with; `check` tells whether it can be."""
    return Pattern(source, max(_literals(source), key=len, default=""))


@cache
def _about(found: Pattern, values: tuple[tuple[str, str], ...]) -> Pattern:
    source = found.source
    for name, value in values:
        source = source.replace(f"<<{name}>>", re.escape(value))
    return pattern(source) if values else found


def asked_about(found: Pattern) -> frozenset[str]:
    """Return the groups of another message whose values the pattern asks for."""
    return frozenset(_ABOUT.findall(found.source))


def check(found: Pattern) -> None:
    """Refuse a pattern that cannot be searched for in bounded time.

    Raises PatternError if it is not a regular expression, ignores case, repeats without a bound
    or holds no text to look for.
    """
    found = pattern(_ABOUT.sub(r"\\w", found.source))  # whatever the values are
    try:
        flags = found.regex.flags
    except re.error as error:
        raise PatternError(f"is not a regular expression ({error})") from None
    if flags & re.IGNORECASE:
        raise PatternError("ignores case, which its search for plain text cannot")
    if any(part in ("*", "+") for part, _ in _parts(found.source)):
        raise PatternError("repeats without a bound; write {0,40} or {1,40}")
    if len(found.anchor) < SHORTEST_ANCHOR:
        raise PatternError(
            f"holds no text of {SHORTEST_ANCHOR} characters outside its brackets, so that"
            " searching for it would be slow"
        )


def _spaces_match_line_breaks(source: str) -> str:
    return "".join(
        part.replace(" ", "[ \\n]") if _PLAIN.match(part) else part for part, _ in _parts(source)
    )


def _literals(source: str) -> list[str]:
    """Return the runs of plain text that every match contains."""
    parts = list(_parts(source))
    if any(part == "|" and depth == 0 for part, depth in parts):
        return []
    runs, run = [], ""
    for (part, depth), (following, _) in pairwise([*parts, ("", 0)]):
        literal = _literal(part) if depth == 0 else None
        repeated = following.startswith(_QUANTIFIERS)  # only the last character is
        if literal is not None:
            run += literal[:-1] if repeated else literal
        if literal is None or repeated:
            runs.append(run)
            run = ""
    return [*runs, run]


def _literal(part: str) -> str | None:
    if _PLAIN.match(part):
        return part
    if len(part) == 2 and part[0] == "\\" and _ESCAPED_LITERAL.match(part[1]):
        return part[1]
    return None


def _parts(source: str) -> Iterator[tuple[str, int]]:
    """Split into escapes, classes, bounds and plain text, with the depth of brackets."""
    depth = 0
    for part in _PART.findall(source):
        depth += part == "("
        yield part, depth
        depth -= part == ")"
