"""What a run got over: what a program survived, what ended well after it, what was put right."""

from __future__ import annotations

import re
from bisect import bisect_right

from .failures import Failure
from .hits import RELEVANT, Findings, Hit, survived
from .log import TYPED

TYPED_LATER = 30  # commands among which one that was typed again is looked for
OVERCOME = ("warned", "survived")
"""How a message stands after which its program went on."""

# A command behind its prompt, without what only says as whom it runs.
_NEXT_COMMAND = re.compile(r"(?:&&|;|\|\|) (?:sudo )?([\w./-]{2,80})")
_COMMAND = re.compile(r".{0,160}?[$#%>\u276f] (?:sudo )?([\w./-]{2,80})")


def got_over(hit: Hit, found: Findings) -> bool:
    """Tell whether the program ended well after this, and it is none of what ends a run surely.

    What a program itself said before may have ended it, and what ended well be another try; unless
    it is the same program by whose last words all is well, see `endings`.
    """
    if hit.number < found.ends.last and _is_over(hit, found):
        return True
    if hit.standing == "kernel":
        return False
    return found.ends.got_over(hit.stream, hit.number, exception=hit.standing == "exception")


def _is_over(hit: Hit, found: Findings) -> bool:
    overcome = hit.standing in OVERCOME and not _ended_after(hit, found)
    mild = hit.kind == "warn" or overcome or (hit.weak and _was_asked(hit))
    return mild or (not found.failures and _was_mended(hit, found))


def _ended_after(hit: Hit, found: Findings) -> bool:
    """Tell whether the program that warned of this ended by an exception before the next was typed.

    What another program came to later says nothing of that.
    """
    return any(
        same_program(hit, failure) and not was_survived(failure, found)
        for failure in found.failures
    )


def same_program(hit: Hit, failure: Failure) -> bool:
    """Tell whether the exception follows the message, with nothing typed between them."""
    typed = hit.stream.typed
    return (
        failure.stream is hit.stream
        and failure.start > hit.last
        and bisect_right(typed, failure.start) == bisect_right(typed, hit.last)
    )


def was_survived(failure: Failure, found: Findings) -> bool:
    """Tell whether the program went on after this exception, or ended well all the same."""
    return survived(failure) or found.ends.got_over(failure.stream, failure.number, exception=True)


def _was_asked(hit: Hit) -> bool:
    """Tell whether the message is the answer to a command that was typed right before it."""
    before = hit.stream.lines[max(0, hit.first - 2) : hit.first]
    return any(TYPED.match(line.text[:RELEVANT]) for line in before)


def _was_mended(hit: Hit, found: Findings) -> bool:
    """Tell whether a command that was answered so was typed again, and then answered otherwise.

    Between them the host was booted anew, or something was repaired.
    """
    lines, typed = hit.stream.lines, hit.stream.typed
    before = lines[max(0, hit.first - 2) : hit.first]
    asked = {program for line in before for program in _programs(line.text)}
    after = bisect_right(typed, hit.last)
    later = typed[after : after + TYPED_LATER] if asked else []
    again = next((place for place in later if _programs(lines[place].text) & asked), None)
    return again is not None and found.last_of(hit) < again


def _programs(line: str) -> set[str]:
    """Return the first words of the commands that were typed there; none where nobody typed."""
    typed = _COMMAND.match(line[:RELEVANT]) if TYPED.match(line[:RELEVANT]) else None
    return {typed[1], *_NEXT_COMMAND.findall(line[typed.end() : RELEVANT])} if typed else set()
