"""A log as one reads it: without colours, timestamps and launchers' labels, sorted by writer."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ..terminal import without_escapes
from .patterns import Text
from .prefixes import LABEL, OF_A_HOST, WRITER, split
from .prompts import alike
from .sections import NOBODY, Heading, headings

HEAD_LINES, TAIL_LINES = 20_000, 100_000  # of a longer log, the middle is left out
MOST_STREAMS = 200  # of more writers, the rest share one stream; a search costs time in each
SHORTEST_WRAP = 60  # columns: narrower terminals are rare, shorter full lines are not
# So many of the lines begin with a word and a colon, and each word so often: then the words tell
# who wrote the lines.
LABELLED = 0.8
LINES_OF_ONE = 3
_BEGIN = 300  # characters of a line in which a prompt, or a step of a training loop, is looked for
# Behind a label on some lines only, what no program says of itself: then it tells the writer.
_OF_ONE_PROCESS = re.compile(r"Traceback \(most recent call last\):|\[rank\d{1,5}\]:")
_LEVELS = frozenset(["INFO", "DEBUG", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL", "TRACE"])

_QUOTES = str.maketrans("\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u00b4\u00a0", "''''\"\"\"' ")
_QUOTING = " \t>"
_BLANKS = re.compile(r"[ \t]+")
_RANK = "[rank"
_RANK_INSIDE = re.compile(r"(?<=[^\s\]:])\[rank\d{1,5}\]:[ ]")

# What a training loop prints while it works.
_PROGRESS = re.compile(
    r"\b(?:[Ss]tep|[Ii]ter(?:ation)?|[Ee]poch)\b[ :=#\[(]{0,3}\d|\d%\|"
    r"|\b(?:it|tok|tokens|samples)/s|\bloss\b'?[ :=]{1,3}\d"
)

# A shell's prompt with a command behind it. "# " alone may be a comment as well as root's.
TYPED = re.compile(
    r"(?:\([\w. -]{1,40}\) ){0,2}(?:\[?[\w.-]{1,40}@[\w.-]{1,64}[^$#%\n]{0,80}[$#%]|[$%\u276f]"
    r"|[A-Za-z][\w.-]{0,40}(?::[~/][\w./~-]{0,80})?[$#]"
    r"|[a-z][\w.-]{1,40} \$(?= [a-z.~/])|>>>|(?:Singularity|Apptainer)>) \S"
)


# Whose terminal a prompt is of, and a command that shows what another one wrote.
_HOST_OF_PROMPT = re.compile(
    r"(?:\([\w. -]{1,40}\) )?(?:\[?[\w.-]{1,40}@(?P<host>[\w.-]{1,64})"
    r"|(?P<bare>[A-Za-z][\w.-]{0,40}):[~/])"
)
_SHOWS = re.compile(
    r"[$#%>\u276f] (?P<shown>(?:sudo )?(?:cat|tail|head|less|zcat|ssh|docker logs|podman logs"
    r"|kubectl (?:-\w{1,10} \S{1,60} )?logs|oc logs|journalctl|scontrol show|sattach)"
    r" [^|\n]{2,200})"
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log."""

    number: int  # counted over all sources, from 1
    source: int  # number of the file it stands in, or of the part below a heading
    rank: int | None
    label: str  # what else tells who wrote it: the name of a container or a host; mostly empty
    prefixes: int  # how many were taken off: a line with more of them begins another message
    text: str  # without prefixes, its prompt as most are; its indentation is kept
    whole: str  # as shown to a person: prefixes kept, colours and control characters gone


@dataclass(frozen=True)
class Source:
    """One file that a run left.

    + rank: whose file it is; None if it holds several ranks' or no rank's lines
    """

    text: str
    rank: int | None = None


class Stream:
    """The lines of one writer in one file, in order, as one text to search.

    + writer: the rank, or what else tells who wrote it; empty where nothing does
    + shown: the lines as they stand in the text; + typed: indexes of those that a person typed
    """

    def __init__(self, rank: int | None, lines: Sequence[Line]) -> None:
        self.rank, self.lines = rank, lines
        label = lines[0].label if lines else ""
        self.writer = label if rank is None else f"{label} {rank}".strip()
        shown = [_BLANKS.sub(" ", line.text).strip() for line in lines]
        self._starts, start = [], 0
        for text in shown:
            self._starts.append(start)
            start += len(text) + 1
        self.text = Text("\n".join(shown))
        self._progress = [
            place for place, text in enumerate(shown) if _PROGRESS.search(text[:_BEGIN])
        ]
        self.typed = [place for place, text in enumerate(shown) if TYPED.match(text[:_BEGIN])]
        self.shown = shown

    def at(self, place: int) -> int:
        """Return the index in `lines` of the line that holds the character at `place`."""
        return bisect_right(self._starts, place) - 1

    def span(self, index: int) -> tuple[int, int]:
        """Return where the line at `index` begins and ends in the text."""
        following = self._starts[index + 1 :][:1]
        end = following[0] - 1 if following else len(self.text.lines)
        return self._starts[index], end

    def progress_after(self, index: int) -> int:
        """Return how many lines after the one at `index` show a training loop at work.

        What follows the next command that was typed is another program's.
        """
        typed = bisect_right(self.typed, index)
        end = self.typed[typed] if typed < len(self.typed) else len(self.lines)
        return bisect_left(self._progress, end) - bisect_right(self._progress, index)

    @property
    def progress(self) -> list[int]:
        """The numbers of the lines that show a training loop at work."""
        return [self.lines[place].number for place in self._progress]

    def speaker(self, index: int) -> str:
        """Return who wrote the line at `index`: the writer, or the host of the prompt above it."""
        return self.writer or self.terminal(self.lines[index].number)

    def terminal(self, number: int) -> str:
        """Return the host in whose terminal the line of that number stands; mostly empty.

        Or the command that shows it: what another process wrote is not the terminal's own.
        """
        above = bisect_left(self.typed, number, key=lambda place: self.lines[place].number)
        prompt = self.lines[self.typed[above - 1]].text[:_BEGIN] if above else ""
        if shows := _SHOWS.search(prompt):
            return shows["shown"]
        named = _HOST_OF_PROMPT.match(prompt)
        return (named["host"] or named["bare"]) if named else ""


def read(sources: Iterable[Source]) -> list[Line]:
    """Return the lines of all sources, cleaned and numbered; empty ones are left out."""
    lines: list[Line] = []
    number = parts = 0
    for source in sources:
        place = parts = parts + 1
        texts = _outdented(_cut(clean(source.text).splitlines()))
        headed, all_labelled, several = headings(texts), _labelled(texts), _several_hosts(texts)
        for block in _blocks(texts):
            labelled = all_labelled or (_ranks_speak(block) and _labelled(block))
            writers = frozenset() if labelled else _writers(texts)
            above, part = NOBODY, place
            for whole in block:
                number += 1
                if whole in headed:
                    above, part = headed[whole], (parts := parts + 1)
                if whole and not whole.isspace():
                    lines += [
                        _placed(line, above, source.rank)
                        for line in _lines(number, part, whole, labelled, writers, several)
                    ]
    return lines


def _placed(line: Line, above: Heading, rank: int | None) -> Line:
    """Return the line with what only its place tells: whose file it is in, or under whose name."""
    if rank is not None:
        return replace(line, rank=rank)
    if line.rank is not None or line.label:
        return line
    return replace(line, rank=above.rank, label=above.label)


def _blocks(texts: Sequence[str]) -> list[Sequence[str]]:
    """Return the lines in parts, each of which begins with a command that was typed.

    The answer to one has labels or headings, and that to the next mostly none.
    """
    typed = [place for place, text in enumerate(texts) if TYPED.match(text[:_BEGIN])]
    return [texts[start:end] for start, end in pairwise([0, *typed, len(texts)]) if start < end]


def _several_hosts(texts: Sequence[str]) -> bool:
    """Tell whether the journals or syslogs of several hosts stand here."""
    found = (OF_A_HOST.match(text) for text in texts)
    return len({each["host"] for each in found if each}) > 1


def _ranks_speak(block: Sequence[str]) -> bool:
    """Tell whether ranks print here: a table of words and values looks like labels otherwise."""
    return any(_OF_ONE_PROCESS.search(text) for text in block)


def clean(text: str) -> str:
    """Return `text` without colours and control characters, with plain quotes."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return without_escapes(text).translate(_QUOTES)


def streams(lines: Sequence[Line]) -> list[Stream]:
    """Return one stream for each writer: what another one printed in between no longer is."""
    writers: dict[tuple[int, int | None, str], list[Line]] = {}
    for line in lines:
        writer = (line.source, line.rank, line.label)
        if writer not in writers and len(writers) >= MOST_STREAMS:
            writer = (line.source, None, "")
        writers.setdefault(writer, []).append(line)
    return [Stream(rank, own) for (_, rank, _), own in writers.items()]


def unwrapped(lines: Sequence[Line]) -> list[Line] | None:
    """Return the lines with those joined that a terminal broke at its width; None if none was."""
    width = max((len(line.whole) for line in lines), default=0)
    full = sum(len(line.whole) == width for line in lines)
    if width < SHORTEST_WRAP or full < 2:
        return None
    joined: list[list[Line]] = []
    for line in lines:
        # A line with a prefix of its own begins a message, however wide the one before is.
        if joined and len(joined[-1][-1].whole) == width and not line.prefixes:
            joined[-1].append(line)
        else:
            joined.append([line])
    return [_joined(parts) for parts in joined]


def _joined(parts: Sequence[Line]) -> Line:
    rest = "".join(part.whole for part in parts[1:])
    first = parts[0]
    return replace(first, text=first.text + rest, whole=first.whole + rest) if rest else first


def left_out(text: str) -> str:
    """Say which lines of a text are not looked at, as it is put into a sentence; mostly empty."""
    count = len(clean(text).splitlines())
    if count <= HEAD_LINES + TAIL_LINES:
        return ""
    return f"lines {HEAD_LINES + 1:,} to {count - TAIL_LINES:,} of {count:,}"


def _cut(lines: list[str]) -> list[str]:
    if len(lines) <= HEAD_LINES + TAIL_LINES:
        return lines
    return lines[:HEAD_LINES] + lines[-TAIL_LINES:]


def _outdented(texts: list[str]) -> list[str]:
    """Take off what all lines begin with because the log was quoted: blanks and `> `."""
    shown = [text for text in texts if text and not text.isspace()]
    if not shown or shown[0][0] not in _QUOTING:
        return texts
    width = 0
    # What the first and the last in alphabetical order begin with, all of them do.
    for one, other in zip(min(shown), max(shown), strict=False):
        if one != other or one not in _QUOTING:
            break
        width += 1
    return [text[width:] for text in texts]


def _labelled(texts: Sequence[str]) -> bool:
    """Tell whether a launcher put a label before the lines, as `srun --label` and pdsh do."""
    matches = [LABEL.match(text) for text in texts if text]
    labels = [found["label"] or found["boxed"] for found in matches if found]
    boxed = {found["boxed"] for found in matches if found and found["boxed"]}
    if {each.upper() for each in boxed} & _LEVELS:
        return False
    if len(boxed) == 1:  # "[trainer] " stands before what one program says; "[pane 0] " before all
        return _of_a_terminal(texts)
    often = len(labels) >= LINES_OF_ONE * max(1, len(set(labels)))
    return often and len(labels) >= LABELLED * len(matches)


def _of_a_terminal(texts: Sequence[str]) -> bool:
    """Tell whether one label stands before all lines, also before what a person typed."""
    starts = [LABEL.match(f"{text} ") for text in texts if text and not text.isspace()]
    names = {found[0].strip() if found else "" for found in starts}
    framed = len(names) == 1 and len(starts) >= LINES_OF_ONE and names.pop().startswith("[")
    typed = (TYPED.match(found.string[found.end() :][:_BEGIN]) for found in starts if found)
    return framed and any(typed)


def _writers(texts: Sequence[str]) -> frozenset[str]:
    """Return the labels that tell who wrote a line, where only some of the lines have one."""
    matches = [(text, WRITER.match(text)) for text in texts if text]
    return frozenset(
        found[0]
        for text, found in matches
        if found
        and not {found["host"], found["name"]} & _LEVELS
        and _OF_ONE_PROCESS.match(text, found.end())
    )


def _lines(
    number: int, source: int, whole: str, labelled: bool, writers: frozenset[str], several: bool
) -> list[Line]:
    """Return the line; where another rank's begins inside it, because both wrote at once, both."""
    starts = [0, len(whole)]
    if _RANK in whole:
        starts[1:1] = [found.start() for found in _RANK_INSIDE.finditer(whole)]
    result = []
    for start, end in pairwise(starts):
        part = whole[start:end]
        found = split(part, labelled=labelled, writers=writers, several=several)
        text = alike(part[found.end :])
        result.append(Line(number, source, found.rank, found.label, found.count, text, part))
    return result
