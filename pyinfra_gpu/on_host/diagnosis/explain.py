"""One root cause out of what a failed run left.

The rules, in this order:

1. What was only warned of, or survived, is no cause, unless it hides what ended the run.
2. An exception that no entry explains makes a log unexplained. Only the kernel, an earlier
   exception or an error printed right before it outweighs that.
3. A consequence (`hides`) gives way to its cause.
4. Exceptions and the kernel come before other lines, and the first of them before later ones.
5. Weak entries count only where there is nothing better.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from . import text
from .causes import Catalogue, Entry, Hint, Step
from .text import LOOKED_AT, TYPED, Failure, Stream

_TAIL = 30  # lines shown of a log that nothing explains
_LONGEST_LINE = 400  # characters
_MOST_PLACES = 60  # of one message in one stream
_RIGHT_BEFORE = 30  # lines between an error and the exception that it led to
_SOON_OVER = 5  # lines that a log may have after a warning that was its last word
_STILL_WORKING = 3  # lines of progress after a message: it ended nothing
_SAFE = re.compile(r"[\w./:@%+,-]{1,200}")  # what a shell takes literally

_KERNEL = re.compile(
    r"\bkernel: |^\[ {0,10}\d{1,8}\.\d{6}\] |^\[\w{3} \w{3} {1,2}\d{1,2} [\d:]{8} \d{4}\] "
    r"|Killed process \d|\bNVRM:"
)
_ERROR = re.compile(
    r"\b(?:E|FATAL|fatal|Fatal|Error|error|ERROR)\b ?[:!\]]|(?:^|[\[ ])[EF]\d{3,4} \d\d:\d\d:"
)
_WARNING = re.compile(
    r"\b(?:WARNING|Warning|\w{1,40}Warning|warning|warn|(?<!=)INFO|DEBUG)\b"
    r"|(?:^|[\[ ])[IW]\d{3,4} \d\d:|\[[IW] "
)
_GOES_ON = re.compile(
    r"\b(?:[Rr]etrying|will retry|[Tt]rying (?:again|next|another)|[Ff]all(?:ing|s|en)? ?back"
    r"|[Rr]ecovered|(?<!Exception )(?<!have been )(?<!\()[Ii]gnor(?:ed|ing)|[Ss]kipp(?:ed|ing)"
    r"|[Cc]ontinuing)\b(?!=)"
)
_TRAINED_WELL = (
    r"\b[Tt]raining (?:is |was |has )?(?:complete|completed|done|finished)\b(?! with error)"
    r"|'train_runtime': \d|`max_(?:epochs|steps|time)=[^`]{1,40}` reached|\bCOMPLETED {1,10}0:0\b"
    r"|\b[Ss]aved \S{0,120}\bfinal\.\w{2,12}\b|\b[Ff]inal (?:model|weights) (?:is |was )?saved\b"
)
_TRAINED = re.compile(_TRAINED_WELL)
_ENDED_WELL = re.compile(
    rf"{_TRAINED_WELL}|^exit(?: code)?[:= ]{{1,3}}0$"
    r"|\b(?:successfully (?:finished|completed|installed|built)|completed successfully)\b"
    r"|^Successfully (?:installed|built|tagged) \S|WorkerState\.SUCCEEDED|\bexited with code 0$"
    r"|^[= ]{0,40}\d{1,5} passed\b[^\n]{0,60} in [\d.]{1,9}s|^Job succeeded$|\brc=0$|^Complete!$"
    r"|^(?:Installed|Audited) \d{1,5} packages? in|\bDKMS: install completed|^\[100%\] Built target"
)
_REBOOT = re.compile(r"[#$] (?:sudo )?(?:systemctl )?reboot\b|[#$] sudo shutdown -r\b")


@dataclass(frozen=True)
class Found:
    """A cause, in the words of the catalogue.

    + short: the first sentence of `cause`
    + line: what shows it: of the log, or what the host says; source: where that is from
    """

    name: str
    cause: str
    short: str
    line: str
    source: str
    rank: int | None
    fix: tuple[Step, ...]
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What logs mean.

    + found: the root cause, then what follows from it or was not shown to be the cause
    + unexplained: the last lines, where no cause was found
    + failed: whether an exception ended a program, or a known failure is there
    """

    found: tuple[Found, ...] = ()
    unexplained: str = ""
    failed: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class _Hit:
    """A place where an entry's message stands, and how it stands there."""

    entry: Entry
    stream: Stream
    first: int
    last: int
    found: re.Match[str]
    failure: Failure | None
    standing: str  # exception, kernel, error, plain, warned or survived

    @property
    def number(self) -> int:
        return self.stream.lines[self.first].number

    @property
    def overcome(self) -> bool:
        return self.standing in ("warned", "survived")


def explain(
    texts: Mapping[str, str], catalogue: Catalogue, host: Mapping[str, str] | None = None
) -> Answer:
    """Return what the logs of a run mean, together.

    + texts: source -> its text, such as "rank 1"; those that are believed first come first
    + host: fact -> detail, which decide between the causes of one message
    """
    lines = text.read(texts)
    streams = text.streams(lines)
    hits, failed = _search(streams, catalogue)
    roots = _decide(hits, failed, catalogue)
    if not roots:
        shown = "\n".join(line.whole.rstrip() for line in lines[-_TAIL:])
        lasting = any(not hit.overcome for hit in hits)
        return Answer(unexplained=shown, failed=bool(failed) or lasting)
    whole = [stream.text for stream in streams]
    root = min(roots, key=lambda hit: (hit.standing not in ("exception", "kernel"), hit.number))
    others: dict[str, _Hit] = {}
    for hit in hits:
        if not hit.entry.wrapper and hit.entry.name != root.entry.name:
            others.setdefault(hit.entry.name, hit)
    found = [_found(hit, whole, host or {}) for hit in (root, *others.values())]
    return Answer(tuple(found), failed=True)


# -- searching


def _search(streams: Sequence[Stream], known: Catalogue) -> tuple[list[_Hit], list[Failure]]:
    """Return where messages stand, and the exceptions after which nothing went on, in order."""
    hits: list[_Hit] = []
    failed: list[Failure] = []
    for stream in streams:
        own = text.failures(stream)
        inside = {index: each for each in own for a, b in each.spans for index in range(a, b + 1)}
        well = _ended_well(stream)
        found = _hits(stream, known, inside)
        hits += [hit for hit in found if hit.standing == "kernel" or not well]
        failed += [f for f in own if not (well or f.aside or _went_on(stream, f.spans[-1][1]))]
    hits.sort(key=lambda hit: hit.number)
    failed.sort(key=lambda each: each.number)
    over = _last(streams, _TRAINED)
    if over and not any(each.number > over for each in failed):
        # What the kernel says afterwards ended nothing: it is of another day or program.
        hits = [h for h in hits if h.number > over and h.standing != "kernel"]
        failed = []
    numbers = [hit.number for hit in hits] + [each.number for each in failed]
    if _last(streams, _REBOOT) > max(numbers, default=0):
        return [], []  # the reboot cured it, as far as the log goes on
    return hits, failed


def _hits(stream: Stream, known: Catalogue, inside: Mapping[int, Failure]) -> Iterator[_Hit]:
    one_line = stream.text.replace("\n", " ")  # a message may be broken where it has a space
    for entry in known.entries.values():
        for message in entry.match:
            if message.anchor not in one_line:
                continue
            for found in islice(message.find(stream.text), _MOST_PLACES):
                first = stream.at(found.start())
                last = stream.at(max(found.start(), found.end() - 1))
                failure = next((inside[i] for i in range(first, last + 1) if i in inside), None)
                standing = _standing(stream, first, last, failure)
                yield _Hit(entry, stream, first, last, found, failure, standing)


def _standing(stream: Stream, first: int, last: int, failure: Failure | None) -> str:
    whole = stream.lines[first].whole[:LOOKED_AT]
    if _KERNEL.search(whole):
        return "kernel"
    if failure:
        over = failure.aside or _went_on(stream, failure.spans[-1][0])
        return "survived" if over else "exception"
    if _went_on(stream, last) or _GOES_ON.search(stream.shown[first][:LOOKED_AT]):
        return "survived"
    if _ERROR.search(whole):
        return "error"
    return "warned" if _WARNING.search(whole) else "plain"


def _went_on(stream: Stream, last: int) -> bool:
    """Tell whether the program worked on after this line, or said that it would.

    What follows the next command that was typed is another program's.
    """
    end = stream.typed_after(last)
    after = stream.shown[last + 1 : min(last + 3, end)]
    if any(_GOES_ON.search(each[:LOOKED_AT]) for each in after):
        return True
    return stream.progress(last + 1, end) >= _STILL_WORKING


def _ended_well(stream: Stream) -> bool:
    return any(_ENDED_WELL.search(shown[:LOOKED_AT]) for shown in stream.shown[-3:])


def _last(streams: Sequence[Stream], what: re.Pattern[str]) -> int:
    """Return the number of the last line of the logs that says so; 0 if none does."""
    return max(
        (
            line.number
            for stream in streams
            for line, shown in zip(stream.lines, stream.shown, strict=True)
            if what.search(shown[:LOOKED_AT])
        ),
        default=0,
    )


# -- deciding


def _decide(hits: Sequence[_Hit], failed: Sequence[Failure], known: Catalogue) -> list[_Hit]:
    """Return the hits that may be the root cause; none where it is not known."""
    roots = [hit for hit in hits if not hit.entry.wrapper]
    unknown = [each for each in failed if each not in {hit.failure for hit in hits}]
    lasting = [hit for hit in roots if not hit.overcome]
    if unknown:
        lasting = [hit for hit in lasting if not hit.entry.weak and _outweighs(hit, unknown[0])]
        return _without_effects(lasting, known)
    ended = {hit.entry.name for hit in hits if hit.standing in ("exception", "error")}
    lasting += [
        hit for hit in roots if hit.overcome and any(known.hides(hit.entry.name, n) for n in ended)
    ]
    counted = [hit for hit in lasting if not hit.entry.weak or hit.standing == "kernel"]
    pool = _without_effects(counted or lasting, known)
    pool = [hit for hit in pool if not hit.entry.weak] or pool
    if not pool and not failed:
        pool = [hit for hit in roots if not hit.entry.weak and _last_word(hit)]
    return pool


def _without_effects(hits: Sequence[_Hit], known: Catalogue) -> list[_Hit]:
    """Return the hits that follow from none of the others."""
    names = {hit.entry.name for hit in hits}
    return [hit for hit in hits if not any(known.hides(n, hit.entry.name) for n in names)]


def _last_word(hit: _Hit) -> bool:
    """Tell whether a program warned of this and then ended."""
    after = hit.stream.shown[hit.last + 1 : hit.last + 2 + _SOON_OVER]
    over = len(after) <= _SOON_OVER or any(TYPED.match(each[:LOOKED_AT]) for each in after)
    return hit.standing == "warned" and over


def _outweighs(hit: _Hit, unknown: Failure) -> bool:
    if hit.failure and hit.standing == "exception":
        return hit.failure.number < unknown.number
    if hit.standing == "error":
        return hit.stream is unknown.stream and 0 < unknown.start - hit.last <= _RIGHT_BEFORE
    return hit.standing == "kernel"


# -- saying


def _found(hit: _Hit, whole: Sequence[str], host: Mapping[str, str]) -> Found:
    entry, fields = hit.entry, _fields(hit.found)
    shown = " ".join(line.whole.strip() for line in hit.stream.lines[hit.first : hit.last + 1])
    if len(shown) > _LONGEST_LINE:
        place = max(0, shown.find(hit.found[0][:40]) - 100)
        shown = f"{'...' if place else ''}{shown[place : place + _LONGEST_LINE - 6]}..."
    cause, fix, source = entry.cause, entry.fix, hit.stream.source
    if (reported := _hint(entry, whole, host)) is not None:
        hint, line, more = reported
        cause, fix, fields = hint.cause, hint.fix or fix, {**fields, **more}
        if hint.host:
            cause = f"{cause.rstrip('.')}: {line}."
    cause = _filled(cause, lambda name: fields.get(name, name.upper()))
    steps = tuple(
        Step(*(_filled(part, lambda name: _typed(fields, name)) for part in (step.text, step.run)))
        for step in fix
    )
    short = re.split(r"(?<=[.!]) (?=[A-Z`])", cause, maxsplit=1)[0]
    return Found(entry.name, cause, short, shown, source, hit.stream.rank, steps, fields)


def _hint(
    entry: Entry, whole: Sequence[str], host: Mapping[str, str]
) -> tuple[Hint, str, Mapping[str, str]] | None:
    """Return the first hint that holds: what the host says comes before other lines of the log."""
    for hint in entry.when:
        if hint.host in host:
            return hint, host[hint.host], {}
    for hint in entry.when:
        for each in whole if hint.log else ():
            if hint.log and hint.log.anchor in each and (found := next(hint.log.find(each), None)):
                return hint, found[0], _fields(found)
    return None


def _fields(found: re.Match[str]) -> dict[str, str]:
    return {name: value for name, value in found.groupdict().items() if value}


def _filled(said: str, value: Callable[[str], str]) -> str:
    return re.sub(r"\{([a-z][a-z_]*)\}", lambda found: value(found[1]), said)


def _typed(fields: Mapping[str, str], name: str) -> str:
    word = fields.get(name, "")
    return word if _SAFE.fullmatch(word) else name.upper()
