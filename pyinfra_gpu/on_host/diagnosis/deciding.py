"""Which of the messages found in a log is the cause.

The rules, in this order:

1. torchrun says which rank failed first; where that rank says anything, the others are collateral.
   If all it says is a time-out, the exception that another rank had before is what it waited for.
2. What was only warned of, or survived, is no cause, unless the catalogue says that it explains
   what ended the run; a time-out or a signal only where nothing was done after it.
3. An exception that nothing in the catalogue explains makes a log unclassified. It is outweighed
   only by what the kernel says, by an exception that came first, by an error printed right
   before it, or by what a person was told who asked the host afterwards, at a prompt: the message
   itself, or the line that decides what it means, be it of a warning before the exception. A
   warning of NCCL does not: what NCCL fails at is in the exception.
4. A consequence (as `explains` tells) gives way to its cause; of what `precedes`, only what comes
   after it.
5. Exceptions and the kernel come before other lines, and the first of them before later ones.
6. Time-outs and signals (`weak`) count where there is nothing better, unless another line decides
   what they mean; of several, those count that another line decides. Before them an exception ended
   a thread: then that is what they wait for, and the cause, if it is known.
7. Where only an exception is left that nothing explains, of a rank that another one then waited for
   until a time-out or lost its connection to, that exception is the cause, whatever its type.
8. A run that nothing ended may still have had a remark to report; none of what came before a line
   that says that it ended well, unless its own program ended by an exception before. Nor is a
   time-out a cause that somebody asked for before that line. What an installer, a test or a trainer
   said before its own good end is none either, nor what ended ranks that torchrun began anew and
   that then ended well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import takewhile

from .entries import Catalogue, Kind, Reading
from .failures import Failure
from .hits import RELEVANT, Findings, Hit
from .log import TYPED, Stream
from .mended import OVERCOME, got_over, same_program, was_survived
from .torchrun import Summary

Verdict = tuple[Hit, Kind]

RIGHT_BEFORE = 30  # lines between an error and the exception that it led to
SOON_OVER = 5  # lines that a log may have after a warning that was its last word

_PROGRAM = re.compile(r"\bpid='?\d{1,10}'?, name=([^,\s]{1,40})")
_OURS = re.compile(r"python|pt_|torchrun|ray|<unknown>|nvidia|\d|train")
# What ranks say of each other, and what ended a program from outside, is no mistake of its own.
_NOT_OWN = re.compile(
    r"KeyboardInterrupt|SystemExit|SignalException|Dist\w{1,30}Error|NCCL|nccl|[Gg]loo|CUDA"
    r"|[Tt]ime(?:d )?-?out|Connection|\bstore\b|Broken pipe"
)
_LEFT_ALONE = re.compile(r"[Tt]imed?[ -]?out|TIMEOUT|Connection (?:closed|reset)|Broken pipe")
_CTRL_C = re.compile(r"\s*(?:\^C|KeyboardInterrupt\b)")
_HOST_LAYERS = ("driver", "host")
_REMARKS = ("expected", "evidence", "warn")


def decide(found: Findings, summary: Summary | None, known: Catalogue) -> list[Verdict]:
    """Return the root cause and what it is reported as; several if they are independent."""
    hits = [hit for hit in found.hits if not got_over(hit, found)]
    ended = [failure for failure in found.failures if not was_survived(failure, found)]
    explained = {hit.failure for hit in hits if _tells(hit)}
    unknown = [failure for failure in ended if failure not in explained]
    roots = [hit for hit in hits if hit.kind == "root"]
    if summary:
        roots, unknown = _of_rank(summary, roots, unknown)
    causes = _causes(roots, unknown, hits, found, known)
    if causes and (ended_a_thread := _ended_a_thread(causes, roots)):
        return [(ended_a_thread, "root")]
    if causes and not _waits_for_a_thread(causes, found.failures, hits):
        first = min(causes, key=_precedence)
        return [(hit, "root") for hit in (first, *_independent(first, causes))]
    if not causes and (awaited := _awaited(unknown, found.hits, known)):
        return [(awaited, "root")]
    if causes or unknown or (ended and not _only_remarked(ended, hits)) or summary:
        return []
    return _remarks(hits, known)


def _waits_for_a_thread(
    causes: Sequence[Hit], failures: Sequence[Failure], hits: Sequence[Hit]
) -> bool:
    """Tell whether all that is known are time-outs, after a thread ended that nothing explains."""
    start = min(hit.number for hit in causes)
    # What follows it closely counts as quoted by it, and may be another thread's.
    named = {
        hit.failure
        for hit in hits
        if hit.failure and hit.first <= hit.failure.spans[0][0] <= hit.last
    }
    died = (each for each in failures if each.thread and each not in named)
    return all(hit.weak for hit in causes) and any(each.number < start for each in died)


def _ended_a_thread(causes: Sequence[Hit], roots: Sequence[Hit]) -> Hit | None:
    """Return what ended a thread before the time-outs that are all there is otherwise."""
    start = min(hit.number for hit in causes)
    died = (hit for hit in roots if hit.failure and hit.failure.thread and hit.number < start)
    return next(died, None) if all(hit.weak for hit in causes) else None


def _tells(hit: Hit) -> bool:
    """Tell whether the message says what its exception is about.

    What merely follows an exception's first line may be another program's. That another process
    raised something tells nothing of what that was, which stands below it.
    """
    if hit.failure is None or (hit.failure.foreign and hit.weak):
        return False
    spans = hit.failure.spans[-1:] if hit.failure.carries else hit.failure.spans
    in_first_lines = any(hit.first <= first <= hit.last for first, _ in spans)
    return in_first_lines or hit.by_itself not in ("wrapper", "secondary")


def _awaited(unknown: Sequence[Failure], hits: Sequence[Hit], known: Catalogue) -> Hit | None:
    """Return the exception of a rank that another one then waited for, if it is the program's own.

    Not of a rank that itself waited later on: it got over its exception.
    """
    first = min(filter(_is_own, unknown), key=lambda failure: failure.number, default=None)
    entry = known.awaited
    if first is None or entry is None or first.aside or first.foreign:
        return None
    place = first.spans[-1][0]
    who = first.stream.speaker(place)
    if not who:
        return None
    waited = {
        hit.stream.speaker(hit.first) for hit in hits if _in_vain(hit) and _later(hit, first, who)
    }
    if who in waited or not waited - {""}:
        return None
    return Hit(
        entry=entry,
        case=None,
        stream=first.stream,
        anchor=0,
        span=first.stream.span(place),
        first=place,
        last=place,
        groups={},
        failure=first,
        standing="exception",
    )


def _is_own(failure: Failure) -> bool:
    """Tell whether the exception is none of what ranks say of each other."""
    line = failure.stream.lines[failure.spans[-1][0]]
    return _NOT_OWN.search(line.text[:RELEVANT]) is None


def _later(hit: Hit, first: Failure, who: str) -> bool:
    """Tell whether the message comes after the exception, or the order of the two tells nothing.

    Of two that wrote at once, the traceback's begin counts; where the log of one host stands as a
    whole before that of another, nothing does.
    """
    start = first.stream.lines[first.start]
    if hit.number > start.number or hit.stream.speaker(hit.first) == who:
        return hit.number > start.number
    terminal = first.stream.terminal(hit.number)
    return (terminal not in ("", who)) or hit.lines[0].source != start.source


def _in_vain(hit: Hit) -> bool:
    """Tell whether a rank says here that another one did not come, or went away."""
    consequence = hit.kind == "secondary" or (hit.kind == "root" and hit.weak)
    line = hit.lines[0].whole[:RELEVANT]
    return consequence and (hit.entry.layer == "nccl" or _LEFT_ALONE.search(line) is not None)


def _of_rank(
    summary: Summary, roots: list[Hit], unknown: list[Failure]
) -> tuple[list[Hit], list[Failure]]:
    """Keep what this rank says, and what nobody's name is on, if this rank says anything.

    Where that is a time-out alone, also what others had before, and what those had of whom the
    summary does not tell: ranks of another host, which stands elsewhere in the log.
    """
    rank = summary.rank
    if rank not in {hit.rank for hit in roots} | {failure.rank for failure in unknown}:
        return roots, unknown
    whose = (rank, None)
    own = [hit for hit in roots if hit.rank in whose]
    own_unknown = [failure for failure in unknown if failure.rank in whose]
    if own and not own_unknown and all(hit.weak for hit in own):
        start = own[0].number
        elsewhere = {hit.rank for hit in roots} - {*summary.told, None} if summary.told else set()
        own += [
            hit
            for hit in roots
            if hit.rank not in whose
            and _is_strong(hit)
            and (hit.number < start or hit.rank in elsewhere)
        ]
        own_unknown = [failure for failure in unknown if failure.number < start]
    return own, own_unknown


def _is_strong(hit: Hit) -> bool:
    return hit.standing == "exception" and not hit.weak


def _causes(
    roots: Sequence[Hit],
    unknown: Sequence[Failure],
    hits: Sequence[Hit],
    found: Findings,
    known: Catalogue,
) -> list[Hit]:
    lasting = [hit for hit in roots if hit.standing not in OVERCOME]
    if unknown:
        strong = [hit for hit in lasting if not hit.weak]
        pool = [hit for hit in strong if _outweighs(hit, unknown[0])]
        asked = strong + [hit for hit in roots if _warned_and_decided(hit, unknown)]
        pool = pool or [hit for hit in asked if _asked_after(hit, unknown)]
    else:
        lasting += _explaining_warnings(roots, hits, found, known)
        pool = [hit for hit in lasting if not hit.weak]
        pool = pool or [hit for hit in lasting if hit.told] or lasting
    return _without_effects(pool, known)


def _without_effects(hits: Sequence[Hit], known: Catalogue) -> list[Hit]:
    """Return those that follow from no other of them."""
    causes: dict[Reading, int] = {}
    begins: dict[str, int] = {}
    for hit in hits:
        causes[hit.reading] = min(hit.number, causes.get(hit.reading, hit.number))
        begins[hit.entry.id] = min(hit.number, begins.get(hit.entry.id, hit.number))
    effects = {
        id_
        for id_, begin in begins.items()
        for one, place in causes.items()
        if known.explains(one, id_) and (place < begin or not known.by_id[one[0]].precedes)
    }
    return [hit for hit in hits if hit.entry.id not in effects]


def _outweighs(hit: Hit, unknown: Failure) -> bool:
    if hit.standing == "exception" and hit.failure:
        return hit.failure.number < unknown.number
    if hit.standing == "error":
        gap = unknown.start - hit.last
        return hit.stream is unknown.stream and 0 < gap <= RIGHT_BEFORE
    return hit.standing == "kernel" and not _of_another_program(hit)


def _asked_after(hit: Hit, unknown: Sequence[Failure]) -> bool:
    """Tell whether a person was told this by a command that was typed after those exceptions.

    Either the message itself, or the line that decides what it means. What the program itself
    prints after an exception is mostly its consequence.
    """
    if hit.standing == "kernel":
        return False
    start = hit.failure.start if hit.failure else hit.first
    return _typed_between(unknown, hit.stream, start) or (
        hit.told is not None and _typed_between(unknown, hit.told.stream, hit.told.index)
    )


def _warned_and_decided(hit: Hit, unknown: Sequence[Failure]) -> bool:
    """Tell whether a program warned of this before it ended so, and another line decides it.

    What that program then raised is mostly its own way of saying that it cannot go on.
    """
    warned = hit.standing in OVERCOME and not hit.entry.weak and hit.told is not None
    return warned and any(same_program(hit, failure) for failure in unknown)


def _typed_between(unknown: Sequence[Failure], stream: Stream, line: int) -> bool:
    """Tell whether a command was typed between the last of the exceptions before and the line.

    A rank's exception stands in a stream of its own: their order in the file is what counts.
    """
    told = stream.lines[line]
    begins = [(each, each.stream.lines[each.start]) for each in unknown]
    before = [each for each, at in begins if at.source == told.source and at.number < told.number]
    if not before:
        return False
    since = max(each.stream.lines[each.spans[-1][0]].number for each in before)
    upwards = (stream.lines[place] for place in range(line, -1, -1))
    after = takewhile(lambda each: each.number > since, upwards)
    return any(TYPED.match(each.text[:RELEVANT]) for each in after)


def _of_another_program(hit: Hit) -> bool:
    """Tell whether the kernel names another program, so that it is no word on this one's end."""
    program = _PROGRAM.search(hit.lines[0].whole[:RELEVANT])
    return program is not None and not _OURS.match(program[1])


def _explaining_warnings(
    roots: Sequence[Hit], hits: Sequence[Hit], found: Findings, known: Catalogue
) -> list[Hit]:
    """Return the warnings that tell why the run ended later.

    Of a time-out or a signal none does after which the run was seen at work, nor one that came only
    after it on the same host.
    """
    endings = [hit for hit in hits if hit.standing in ("exception", "error")]
    strong = {hit.entry.id for hit in endings if not hit.entry.weak}
    waited: dict[str, Hit] = {}
    for hit in endings:
        if hit.entry.weak:
            waited.setdefault(hit.entry.id, hit)

    @cache
    def explained(one: Reading) -> tuple[bool, list[Hit]]:
        ends = [end for id_, end in waited.items() if known.explains(one, id_)]
        return any(known.explains(one, id_) for id_ in strong), ends

    def explains(hit: Hit) -> bool:
        ended, ends = explained(hit.reading)
        return ended or any(_was_waited_for(hit, end, found) for end in ends)

    return [hit for hit in roots if hit.standing in OVERCOME and explains(hit)]


def _was_waited_for(hit: Hit, end: Hit, found: Findings) -> bool:
    before = hit.number < end.number
    elsewhere = hit.stream.speaker(hit.first) != end.stream.speaker(end.first)
    return (before or elsewhere) and not found.worked(hit.number, end.number)


def _precedence(hit: Hit) -> tuple[bool, int]:
    return hit.standing not in ("exception", "kernel"), hit.number


def _independent(first: Hit, causes: Sequence[Hit]) -> list[Hit]:
    """Return causes beside the first: statements of the host itself, about the other layer."""
    if first.entry.layer not in _HOST_LAYERS:
        return []
    others = (
        hit
        for hit in causes
        if hit.entry.layer in _HOST_LAYERS
        and hit.entry.layer != first.entry.layer
        and hit.standing in ("kernel", "error")
        and not _of_another_program(hit)
    )
    return list(others)[:1]


def _only_remarked(ended: Sequence[Failure], hits: Sequence[Hit]) -> bool:
    """Tell whether each exception is one that the catalogue only remarks on."""
    remarked = {hit.failure for hit in hits if hit.kind in _REMARKS}
    return all(failure in remarked for failure in ended)


def _remarks(hits: Sequence[Hit], known: Catalogue) -> list[Verdict]:
    """Return what is worth telling about a run that nothing ended.

    A cause that was only warned of is one if the log ends there; if it goes on, it is a warning.
    """
    for hit in _without_effects(hits, known):
        if hit.kind in _REMARKS:
            return [(hit, hit.kind)]
        if hit.kind == "root" and not hit.weak:
            over = len(hit.stream.lines) - 1 - hit.last <= SOON_OVER or _ended(hit)
            return [(hit, "root" if over and hit.standing == "warned" else "warn")]
    return []


def _ended(hit: Hit) -> bool:
    """Tell whether the program was over right after the message.

    Somebody ended it, which had waited there, or typed the next command at the prompt.
    """
    after = hit.stream.lines[hit.last + 1 : hit.last + 1 + SOON_OVER]
    return any(_CTRL_C.match(line.text) or TYPED.match(line.text[:RELEVANT]) for line in after)
