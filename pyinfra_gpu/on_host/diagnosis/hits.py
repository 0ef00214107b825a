"""Where the catalogue's messages stand in a log, and how: as the end of a run, or survived."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import takewhile
from typing import Literal

from .elsewhere import Elsewhere, Told
from .endings import GoodEnds, finished, good_ends
from .entries import Case, Catalogue, Entry, Kind, Reading
from .failures import Failure, failures, known_lines
from .host_facts import HostFacts
from .log import TYPED, Line, Stream
from .patterns import Pattern

WINDOWS = 60  # in which one pattern is searched from each end, shared by the streams
FEWEST_WINDOWS = 6  # in each stream
RELEVANT = 400  # characters of a line that are looked at for what kind of line it is
STILL_WORKING = 3  # lines of progress after a message: the run was not ended by it

Standing = Literal["exception", "kernel", "error", "plain", "warned", "survived"]
"""How a message stands in its log.

exception: in the message of one that was printed; kernel: the kernel says it; error: the line
itself says that it is an error; warned: that it is a warning; survived: the program said that it
goes on, or was seen to.
"""

_Standings = Callable[[int, int], tuple[Failure | None, Standing]]
"""From the first and the last line of a message: the exception it is in, and how it stands."""

_KERNEL = re.compile(r"\bkernel: |^\[ {0,10}\d{1,8}\.\d{6}\] |Killed process \d")
_ERROR = re.compile(
    r"\b(?:E|FATAL|fatal|Fatal|Error|error|ERROR)\b ?[:!\]]|(?:^|[\[ ])[EF]\d{3,4} \d\d:\d\d:"
)
# By glog and PyTorch, whatever words it has: "[W910 06:00:09.502 socket.cpp:755] ... (gai error"
_MARKED_WARNING = re.compile(r"(?:^|[\s:\[])W\d{3,4} \d\d:\d\d:\d\d")
_WARNING = re.compile(
    r"\b(?:WARNING|Warning|\w{1,40}Warning|warning|warn|(?<!=)INFO|DEBUG)\b"
    r"|(?:^|[\[ ])[IW]\d{3,4} \d\d:"
    r"|\[[IW] "
)
_GOES_ON = re.compile(
    r"\b(?:[Rr]etrying|will retry|[Tt]rying (?:again|next|another)"
    r"|(?<!You can suppress this exception and )[Ff]all(?:ing|s|en)? ?back"
    r"|[Rr]ecovered"
    # The first of these is an error worded like a warning, the second what Python prints of another
    # exception while it ends; and a recap counts "skipped=3".
    r"|(?<!E: Some index files failed to download\. They have been )(?<!Exception )"
    # What a download or pip leaves out on purpose says nothing of an error behind it.
    r"(?:[Ii]gnored|[Ii]gnoring(?! files matching | \S{1,80}: markers ))"
    r"|[Ss]kipp(?:ed|ing)|[Cc]ontinuing)\b(?!=)"
)
_FRAME = re.compile(r"\s{0,80}File \"")  # a place in a traceback
# An assertion of a test shows the values that it compared: they are no messages.
_COMPARED = re.compile(r"(?:E {1,10})?AssertionError: assert ")
# A notice of a package manager tells of nothing that failed; its errors begin with "E: ".
_NOTICE = re.compile(r"N: |W: Download is performed unsandboxed")
# Who waited before trying again did try again: what follows is how that ended. conda says so of
# its second way of solving, and says nothing more if that fails, too.
# Nor does a step that a loss scaler skips before it gives up say that it went on after.
# torch's store counts its tries before the last error.
_WAITED = re.compile(
    r"\b[Rr]etry(?:ing)? (?:in|after) \d|[Rr]etrying with (?:flexible solve|next repodata source)"
    r"|Attempted loss scale: |reducing loss scale to |retrying \(try=\d"
)
_NO_CAUSE = ("secondary", "wrapper")
LINES_AFTER = 2  # that may tell that the program goes on
RIVALS = 16  # messages in one place; more are only in a log made for it


@dataclass(frozen=True, eq=False)
class Hit:
    """A place where an entry's message stands.

    + first, last: indexes of its lines in the stream; + span: of its characters in the text
    + failure: the exception that it belongs to
    + told: the other line that decides which case it is, where one does
    """

    entry: Entry
    case: Case | None
    stream: Stream
    anchor: int
    span: tuple[int, int]
    first: int
    last: int
    groups: Mapping[str, str | None]
    failure: Failure | None
    standing: Standing
    told: Told | None = None

    @property
    def kind(self) -> Kind:
        """What the message is, read with the host's facts."""
        return self.case.kind if self.case else self.entry.kind

    @property
    def by_itself(self) -> Kind:
        """What the message is without what another entry lends it."""
        return self.kind if self.case in self.entry.cases else self.entry.kind

    @property
    def weak(self) -> bool:
        """Whether it names a cause only if nothing else failed; not where another line decides.

        A line that decides between the causes of such failures decides nothing against others, nor
        does the message itself. What names no cause is no stronger for a line that was lent to it.
        """
        if self.by_itself in _NO_CAUSE and self.kind == "root":
            return True
        return self.entry.weak and (
            self.told is None
            or self.case not in self.entry.cases
            or any(self.told.line == line.whole.strip() for line in self.lines)
        )

    @property
    def reading(self) -> Reading:
        """The entry and its case, to ask the catalogue what follows from them."""
        return self.entry.id, self.case

    @property
    def rank(self) -> int | None:
        """Who said it."""
        return self.stream.rank

    @property
    def lines(self) -> Sequence[Line]:
        """The lines it stands in."""
        return self.stream.lines[self.first : self.last + 1]

    @property
    def number(self) -> int:
        """The number of its first line in the log."""
        return self.stream.lines[self.first].number


@dataclass(frozen=True)
class Findings:
    """What the streams hold: messages of the catalogue, and exceptions; each in the log's order.

    + progress: the numbers of the lines that show a training loop at work, whoever wrote them
    """

    hits: tuple[Hit, ...]
    failures: tuple[Failure, ...]
    ends: GoodEnds = field(default_factory=GoodEnds)
    progress: tuple[int, ...] = ()

    def worked(self, since: int, until: int) -> bool:
        """Tell whether the run was seen at work between two lines, by their numbers."""
        return bisect_left(self.progress, until) - bisect_right(self.progress, since) >= (
            STILL_WORKING
        )

    def last_of(self, hit: Hit) -> int:
        """Return the index of the line in which its stream has this entry's message last."""
        return self._last[hit.entry.id, id(hit.stream)]

    @cached_property
    def _last(self) -> Mapping[tuple[str, int], int]:
        return {(each.entry.id, id(each.stream)): each.first for each in self.hits}


def search(streams: Sequence[Stream], known: Catalogue, facts: HostFacts) -> Findings:
    """Return what the streams hold."""
    limit = max(FEWEST_WINDOWS, WINDOWS // max(1, len(streams)))
    hits: list[Hit] = []
    failed: list[Failure] = []
    log = Elsewhere(streams)
    for stream in streams:
        own = failures(stream)
        standing = _standings(stream, known_lines(own))
        found = [
            hit
            for entry, pattern in known.near(stream.text)
            for hit in _hits(stream, entry, pattern, limit, standing, facts, log, known.lent(entry))
        ]
        hits += _specific(found, known)
        failed += own
    return Findings(
        tuple(sorted(hits, key=lambda hit: (hit.number, -hit.anchor))),
        tuple(sorted(failed, key=lambda failure: failure.number)),
        good_ends(streams),
        tuple(sorted(number for stream in streams for number in stream.progress)),
    )


def survived(failure: Failure) -> bool:
    """Tell whether the program went on after this exception."""
    stream = failure.stream
    before = [
        line
        for line in stream.lines[max(0, failure.start - 1) : failure.start]
        if not _WAITED.search(line.whole[:RELEVANT])
    ]
    named = failure.spans[-1][0]  # where its message ends is not always to be seen
    after = stream.lines[named + 1 : named + 1 + LINES_AFTER]
    return failure.aside or _goes_on(stream, named, [*before, *after])


def _goes_on(stream: Stream, last: int, telling: Sequence[Line]) -> bool:
    progress = stream.progress_after(last)
    # What follows the next command that was typed is another program's.
    own = takewhile(lambda line: not TYPED.match(line.text[:RELEVANT]), telling)
    working = progress >= STILL_WORKING or (progress > 0 and finished(stream))
    return working or any(
        _GOES_ON.search(line.whole[:RELEVANT])
        for line in own
        if not _FRAME.match(line.text)  # a file may be called fallback.py
    )


def _hits(
    stream: Stream,
    entry: Entry,
    pattern: Pattern,
    limit: int,
    standing: _Standings,
    facts: HostFacts,
    log: Elsewhere,
    lent: Sequence[Case],
) -> Iterator[Hit]:
    for found in pattern.find(stream.text, limit):
        first = stream.at(found.start())
        last = stream.at(max(found.start(), found.end() - 1))
        line = stream.lines[first].text[:RELEVANT].strip()
        if _COMPARED.match(line) or (entry.kind == "root" and _NOTICE.match(line)):
            continue
        groups = found.groupdict()
        failure, stands = standing(first, last)
        message = stream.lines[first : last + 1]
        case = entry.case(groups, facts, log)
        if case is None or not (case.facts or _beside(_told(case, groups, log), message)):
            case = _lent_case(lent, message, facts, log) or case
        if entry.only_decided and case is None:
            continue
        yield Hit(
            entry=entry,
            case=case,
            stream=stream,
            anchor=len(pattern.anchor),
            span=found.span(),
            first=first,
            last=last,
            groups=groups,
            failure=failure,
            standing=stands,
            told=_told(case, groups, log) if case else None,
        )


def _lent_case(
    lent: Sequence[Case], message: Sequence[Line], facts: HostFacts, log: Elsewhere
) -> Case | None:
    """Return the first of another entry's cases that fits, if a line beside the message decides it.

    If it is the message itself, that tells no more than the message does, nor than a case of the
    message's own; a line beside it tells more than such a case.
    """
    case = next((case for case in lent if case.fits(None, {}, facts, log)), None)
    return case if case and _beside(_told(case, {}, log), message) else None


def _beside(told: Told | None, message: Sequence[Line]) -> bool:
    """Tell whether what decides is another line than those of the message."""
    return told is not None and told.line not in {line.whole.strip() for line in message}


def _standings(stream: Stream, failed: Mapping[int, Failure]) -> _Standings:
    """Return what tells of a message by its first and last line; of lines that many share, once."""

    @cache
    def told(first: int, last: int) -> tuple[Failure | None, Standing]:
        failure = next((failed[i] for i in range(first, last + 1) if i in failed), None)
        return failure, _standing(stream, first, last, failure)

    return told


def _told(case: Case, groups: Mapping[str, str | None], log: Elsewhere) -> Told | None:
    if case.seen:
        return log.told(case.seen, case.also, groups)
    return log.differing(case.differs) if case.differs else None


def _standing(stream: Stream, first: int, last: int, failure: Failure | None) -> Standing:
    whole = stream.lines[first].whole[:RELEVANT]
    # Whoever else writes "NVRM:" in a line is talking about the kernel.
    if _KERNEL.search(whole) or stream.lines[first].text[:RELEVANT].lstrip().startswith("NVRM:"):
        return "kernel"
    if failure:
        return "survived" if survived(failure) else "exception"
    if _goes_on(stream, last, stream.lines[first : last + 1 + LINES_AFTER]):
        return "survived"
    if _ERROR.search(whole) and not _MARKED_WARNING.search(whole):
        return "error"
    return "warned" if _WARNING.search(whole) else "plain"


def _specific(hits: Sequence[Hit], known: Catalogue) -> list[Hit]:
    """Return the hits without those that a more specific message covers.

    Of two that overlap, the one that explains the other is kept, or else the one that holds the
    other wholly, as in a lexer; a wrapper only quotes what it holds.
    """
    beaten: set[Hit] = set()
    active: list[Hit] = []
    for hit in sorted(hits, key=lambda hit: (hit.span[0], -hit.span[1], -hit.anchor)):
        active = [other for other in active if other.span[1] > hit.span[0]][-RIVALS:]
        if any(_beats(other, hit, known) for other in active):
            beaten.add(hit)
            continue
        beaten.update(other for other in active if _beats(hit, other, known))
        active = [*(other for other in active if other not in beaten), hit]
    return [hit for hit in hits if hit not in beaten]


def _beats(one: Hit, other: Hit, known: Catalogue) -> bool:
    if known.explains(one.reading, other.entry.id):
        return True
    if known.explains(other.reading, one.entry.id) or one.entry is other.entry:
        return False
    holds = one.span[0] <= other.span[0] and other.span[1] <= one.span[1]
    return holds and one.kind != "wrapper" and (one.span != other.span or one.anchor > other.anchor)
