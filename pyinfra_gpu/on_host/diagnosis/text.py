"""A log without colours, clocks and labels, sorted by who wrote it, and the exceptions in it."""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..terminal import without_escapes

HEAD_LINES, TAIL_LINES = 20_000, 100_000  # of a longer log, the middle is left out
MOST_STREAMS = 200  # of more writers, the rest share one stream
LOOKED_AT = 400  # characters of a line that tell what kind of line it is
LONGEST_MESSAGE = 40  # lines that an exception's message may have
_MOST_PREFIXES = 6
_QUOTED_WITHIN = 3  # lines: an exception named so soon after another is what that one quotes

_QUOTES = str.maketrans("\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u00b4\u00a0", "''''\"\"\"' ")
_BLANKS = re.compile(r"[ \t]+")
_RANK_OF_SOURCE = re.compile(r"(?i)\brank[ _-]?(\d{1,5})\b")

_PREFIX = re.compile(
    r"""
    \[(?:rank|default)(?P<rank>\d{1,5})\]:[ ]?                          # PyTorch, torchrun --tee
  | \[?(?P<host>[\w.@-]{1,60})\]?:?[ ](?=\[(?:rank|default)\d)          # pdsh, srun and scripts
  | (?P<label>[\w.-]{1,60})[ ]{0,20}\|(?:[ ]|$)                         # docker compose
  | [\[(]?\d{4}[-/]\d\d[-/]\d\d[T_ ]\d\d:\d\d:\d\d[.,\d]{0,10}          # clocks
    (?:Z|[+-]\d\d:?\d\d)?[\])]?:?[ ]{1,4}
  | [A-Z][a-z]{2}[ ]{1,2}\d{1,2}[ ][\d:]{8}[ ][\w./@-]{1,64}            # journald, syslog
    [ ][\w./@-]{1,64}(?:\[\d{1,8}\])?:[ ]
  | (?:INFO|DEBUG|WARNING|ERROR)[ ]\d\d-\d\d[ ]\d\d:\d\d:\d\d[ ]
    (?:\[?[\w/.]{1,80}:\d{1,6}\][ ]?)?                                  # vLLM
    """,
    re.VERBOSE,
)

TYPED = re.compile(
    r"(?:\([\w. -]{1,40}\) ){0,2}"
    r"(?:\[?[\w.-]{1,40}@[\w.-]{1,64}[^$#%\n]{0,80}[$#%]|[$%\u276f]|>>>) \S"
)
"""A shell's prompt with a command behind it."""

# What a training loop prints while it works.
_PROGRESS = re.compile(
    r"\b(?:[Ss]tep|[Ii]ter(?:ation)?|[Ee]poch)\b[ :=#\[(]{0,3}\d|\d%\|"
    r"|\b(?:it|tok|tokens|samples)/s|\bloss\b'?[ :=]{1,3}\d"
)


@dataclass(frozen=True)
class Line:
    """One line of a log; `text` is without prefixes, `whole` as a person sees it."""

    number: int
    source: str
    rank: int | None
    label: str
    prefixes: int
    text: str
    whole: str


class Stream:
    """The lines of one writer in one source, as one text to search."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines, self.rank, self.source = lines, lines[0].rank, lines[0].source
        self.shown = [_BLANKS.sub(" ", line.text).strip() for line in lines]
        self._starts, start = [], 0
        for text in self.shown:
            self._starts.append(start)
            start += len(text) + 1
        self.text = "\n".join(self.shown)
        starts = [text[:LOOKED_AT] for text in self.shown]
        self._typed = [index for index, text in enumerate(starts) if TYPED.match(text)]
        self._progress = [index for index, text in enumerate(starts) if _PROGRESS.search(text)]

    def typed_after(self, index: int) -> int:
        """Return the index of the next line that a person typed, or how many lines there are."""
        place = bisect_right(self._typed, index)
        return self._typed[place] if place < len(self._typed) else len(self.lines)

    def progress(self, start: int, end: int) -> int:
        """Return how many lines from `start` to before `end` show a training loop at work."""
        return bisect_left(self._progress, end) - bisect_left(self._progress, start)

    def at(self, place: int) -> int:
        """Return the index of the line that holds the character at `place`."""
        return bisect_right(self._starts, place) - 1


def read(texts: Mapping[str, str]) -> list[Line]:
    """Return the lines of all sources, cleaned; empty ones are left out."""
    lines: list[Line] = []
    for source, text in texts.items():
        named = _RANK_OF_SOURCE.search(source)
        rank = int(named[1]) if named else None
        clean = without_escapes(_plain(text).replace("\r\n", "\n").replace("\r", "\n"))
        wholes = clean.translate(_QUOTES).splitlines()
        if len(wholes) > HEAD_LINES + TAIL_LINES:
            wholes = wholes[:HEAD_LINES] + wholes[-TAIL_LINES:]
        for whole in wholes:
            if whole and not whole.isspace():
                lines.append(_line(len(lines) + 1, source, rank, whole))
    return lines


def _plain(text: str) -> str:
    """Return a text; of torchrun's error file (JSON) the traceback in it."""
    if not text.startswith('{"message": {'):
        return text
    try:
        return str(json.loads(text)["message"]["extraInfo"]["py_callstack"])
    except (ValueError, KeyError, TypeError):
        return text


def _line(number: int, source: str, rank: int | None, whole: str) -> Line:
    label, place, count = "", 0, 0
    while count < _MOST_PREFIXES and (found := _PREFIX.match(whole, place)):
        place, count = found.end(), count + 1
        rank = int(found["rank"]) if found["rank"] else rank
        label = label or found["label"] or found["host"] or ""
    return Line(number, source, rank, "" if label.isdigit() else label, count, whole[place:], whole)


def streams(lines: Sequence[Line]) -> list[Stream]:
    """Return one stream for each writer, so that what others printed in between is gone."""
    writers: dict[tuple[str, int | None, str], list[Line]] = {}
    for line in lines:
        writer = (line.source, line.rank, line.label)
        if writer not in writers and len(writers) >= MOST_STREAMS:
            writer = (line.source, None, "")
        writers.setdefault(writer, []).append(line)
    return [Stream(own) for own in writers.values()]


# -- exceptions

_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = re.compile(
    r"During handling of the above exception, another|The above exception was the direct cause of"
)
# An exception that carries another one's traceback in its message.
_CARRIES = re.compile(
    r"Original Traceback|-- Process \d{1,6} terminated with the following error"
    r"|\w{0,40}\.?_?RemoteT"
)
# Python prints these and goes on.
_ASIDE = re.compile(
    r"Exception (?:ignored|in thread) |Error in (?:atexit|sys\.)|Task exception was"
)
_MODULE = r"(?:[A-Za-z_]\w{0,60}\.){0,8}"
_EXCEPTION = re.compile(
    rf"{_MODULE}[A-Z]\w{{0,80}}(?:Error|Exception|Interrupt|Exit|Missing|Resources|Failure|Failed|Timeout)(?::|$)"
    r"|what\(\): "
)
_ANY_EXCEPTION = re.compile(rf"{_MODULE}[A-Za-z_]\w{{0,80}}(?::|$)")
# What comes behind a message: another one, or a part of torchrun's summary.
_NEXT = re.compile(
    rf"Fatal Python error: |{_CHAINED.pattern}|{_EXCEPTION.pattern}|={{10,}}$|\[\d{{1,6}}\]:$"
    r"|Root Cause \(first observed failure\):$"
)


@dataclass(eq=False)
class Failure:
    """An exception that was printed, with those it was raised from.

    + start: index of the line where it begins; spans: the (first, last) line of each message
    + aside: whether Python goes on after it
    """

    stream: Stream
    start: int
    spans: list[tuple[int, int]]
    aside: bool

    @property
    def number(self) -> int:
        """The number of the line with its first exception."""
        return self.stream.lines[self.spans[0][0]].number


def failures(stream: Stream) -> list[Failure]:
    """Return the exceptions printed in a stream, in order."""
    found: list[Failure] = []
    depth: int | None = None  # indentation of the traceback that is open
    start: int | None = None
    aside = joined = False
    indent = 0
    for place, line in enumerate(stream.lines):
        text, above = line.text.strip(), indent
        indent = len(line.text) - len(line.text.lstrip())
        joined = joined or bool(_CHAINED.match(text) or _CARRIES.match(text))
        aside = aside or bool(_ASIDE.match(text))
        if text.endswith(_TRACEBACK):
            depth, start = indent, place if start is None else start
            continue
        below = depth is not None and indent <= depth < above  # right below the frames
        if not (_EXCEPTION.match(text) or (below and _ANY_EXCEPTION.match(text))):
            continue
        span = (place, _end_of_message(stream, place))
        last = found[-1] if found else None
        quoted = last and depth is None and place - last.spans[-1][0] <= _QUOTED_WITHIN
        if last and (joined or quoted):
            last.spans.append(span)
        else:
            found.append(Failure(stream, place if start is None else start, [span], aside))
        depth = start = None
        aside = joined = False
    return found


def _end_of_message(stream: Stream, place: int) -> int:
    end = min(place + LONGEST_MESSAGE, len(stream.lines))
    for follower in range(place + 1, end):
        line, text = stream.lines[follower], stream.lines[follower].text.strip()
        other = line.prefixes > stream.lines[place].prefixes or text.endswith(_TRACEBACK)
        if other or _NEXT.match(text) or TYPED.match(text[:LOOKED_AT]):
            return follower - 1
    return end - 1
