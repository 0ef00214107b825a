"""The exceptions that a log shows: Python's tracebacks, and the last words of C++."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .log import TYPED, Line, Stream
from .torchrun import ends_item

LONGEST_MESSAGE = 40  # lines that an exception's message may have
SHOWN = 400  # characters of a line that are looked at for a prompt
QUOTED_WITHIN = 3  # lines: an exception named so soon after another is what that one quotes

_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = re.compile(
    r"During handling of the above exception, another|The above exception was the direct cause of"
)
# An exception that carries another one's traceback in its message.
_CARRIES = re.compile(
    r"Original Traceback|-- Process \d{1,6} terminated with the following error"
    r"|\w{0,40}\.?(?:_Remote|Remote)Traceback"
)
# Python prints these and goes on.
_ASIDE = re.compile(
    r"Exception ignored |Exception in thread |Error in (?:atexit|sys\.)|Task exception was never"
)
_IN_THREAD = "Exception in thread "
_EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,80}"
    r"(?:Error|Exception|Interrupt|Exit|Missing|Resources|Failure|Failed|Timeout)(?::|$)"
)
# The same in JSON: torchrun's error file, and loggers that write one object a line.
_IN_JSON = re.compile(
    r'(?:"message": "|Traceback \(most recent call last\):\\n[^\n]{0,4000}\\n)'
    r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,80}(?:Error|Exception|Interrupt|Exit|Failure)(?::|\\n|\")"
)
_ANY_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,80}(?::|$)")
_LAST_WORDS = re.compile(r"what\(\): ")
# faulthandler's report of a crash, and the first frame in it of a package.
_CRASH = "Fatal Python error: "
_CRASHED_IN = "Current thread "
_PACKAGE = re.compile(r'File ".{0,300}/(?:site|dist)-packages/([\w.-]{1,60})')
_OUR_PACKAGES = ("torch", "triton", "nvidia", "numpy")
# What begins a message of its own: NCCL's "host:pid:tid [0] ", "wandb: ", "slurmd: ".
_OTHER_MESSAGE = re.compile(
    r"[\w.-]{1,64}:\d{1,9}:\d{1,9} \[|(?:wandb|srun|slurmd|slurmstepd|sbatch|mpirun)[: ]"
)


@dataclass(frozen=True, eq=False)
class Failure:
    """An exception that was printed, with those it was raised from.

    + start: index of the line where it begins: its traceback's, or its own
    + spans: indexes of the (first, last) line of each exception's message, the oldest first
    + aside: whether Python goes on after it: it was raised in a thread or while cleaning up
    + thread: whether it ended a thread alone, for which the rest may then wait in vain
    + foreign: whether it is a crash in the compiled code of a package that is none of ours: which
      signal ended it is then no explanation
    + carries: whether its last exception is that of another process, which one before it only tells
      of: "Caught ValueError in DataLoader worker process 0."
    """

    stream: Stream
    start: int
    spans: tuple[tuple[int, int], ...]
    aside: bool
    thread: bool = False
    foreign: bool = False
    carries: bool = False

    @property
    def rank(self) -> int | None:
        """Whose it is."""
        return self.stream.rank

    @property
    def number(self) -> int:
        """The number of the line with its first exception."""
        return self.stream.lines[self.spans[0][0]].number


def failures(stream: Stream) -> list[Failure]:
    """Return the failures printed in one stream, in order."""
    return _Reader(stream).read()


class _Reader:
    """Goes through a stream's lines once; knows where in a traceback it is."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._texts = [line.text.strip() for line in stream.lines]
        self._found: list[tuple[int, str, list[tuple[int, int]]]] = []
        self._depth: int | None = None  # indentation of the traceback that is open
        self._start: int | None = None  # where the failure began that is not yet named
        self._aside, self._chained = "", False
        self._carried: set[int] = set()  # which of the found carry another process's exception

    def read(self) -> list[Failure]:
        """Return the failures, in order."""
        crashes: list[Failure] = []
        for place, text in enumerate(self._texts):
            if text.endswith(_TRACEBACK):
                self._open(place, text)
            elif _CHAINED.match(text):
                self._chained, self._depth = True, None
            elif _CARRIES.match(text):
                self._carries()
                self._depth = None
            elif _ASIDE.match(text):
                self._aside = text
            elif text.startswith(_CRASH) and self._is_foreign(place):
                crashes.append(Failure(self._stream, place, ((place, place),), False, foreign=True))
            elif self._names_exception(place, text):
                self._name(place)
        exceptions = [
            Failure(
                self._stream,
                start,
                tuple(spans),
                bool(aside),
                thread=aside.startswith(_IN_THREAD),
                carries=number in self._carried,
            )
            for number, (start, aside, spans) in enumerate(self._found)
        ]
        return sorted([*exceptions, *crashes], key=lambda failure: failure.start)

    def _open(self, place: int, text: str) -> None:
        # torchrun prints "traceback : Traceback ..."; a DataLoader "Original Traceback ...".
        if _CARRIES.match(text):
            self._carries()
        line = self._stream.lines[place].text
        self._depth = len(line) - len(line.lstrip())
        self._start = place if self._start is None else self._start

    def _carries(self) -> None:
        self._chained = True
        self._carried.add(len(self._found) - 1)

    def _names_exception(self, place: int, text: str) -> bool:
        if _EXCEPTION.match(text) or _LAST_WORDS.match(text) or _in_json(text):
            return True
        if _OTHER_MESSAGE.match(text):
            return False
        line = self._stream.lines[place].text
        outdented = self._depth is not None and len(line) - len(line.lstrip()) <= self._depth
        return outdented and bool(_ANY_EXCEPTION.match(text))

    def _is_foreign(self, place: int) -> bool:
        """Tell whether the crash reported here was in another package's code than ours."""
        below = self._texts[place + 1 : place + 4]
        at = next((n for n, text in enumerate(below) if text.startswith(_CRASHED_IN)), None)
        frame = self._texts[place + at + 2 : place + at + 3] if at is not None else []
        package = _PACKAGE.match(frame[0]) if frame else None
        return package is not None and package[1] not in _OUR_PACKAGES

    def _name(self, place: int) -> None:
        span = (place, self._end_of_message(place))
        quoted = self._depth is None and place - self._last() <= QUOTED_WITHIN
        if self._found and (self._chained or quoted):
            self._found[-1][2].append(span)
        else:
            self._found.append((place if self._start is None else self._start, self._aside, [span]))
        self._depth = self._start = None
        self._aside, self._chained = "", False

    def _last(self) -> int:
        """Return the index of the line that last named an exception."""
        return self._found[-1][2][-1][0] if self._found else -LONGEST_MESSAGE

    def _end_of_message(self, place: int) -> int:
        lines, first = self._stream.lines, self._stream.lines[place]
        end = place
        for follower in range(place + 1, min(place + LONGEST_MESSAGE, len(lines))):
            if _begins_another(lines[follower], self._texts[follower], first):
                break
            end = follower
        return end


def _in_json(text: str) -> bool:
    return text.startswith(("{", '"message": "')) and _IN_JSON.search(text[:5000]) is not None


def _begins_another(line: Line, text: str, first: Line) -> bool:
    return bool(
        line.prefixes > first.prefixes
        or text.endswith(_TRACEBACK)
        or _CHAINED.match(text)
        or _EXCEPTION.match(text)
        or _OTHER_MESSAGE.match(text)
        or text.startswith(_CRASH)
        or TYPED.match(text[:SHOWN])
        or ends_item(text)
    )


def known_lines(found: Sequence[Failure]) -> dict[int, Failure]:
    """Return, for each line of a failure's message (by its index in the stream), the failure."""
    return {
        index: failure
        for failure in found
        for first, last in failure.spans
        for index in range(first, last + 1)
    }
