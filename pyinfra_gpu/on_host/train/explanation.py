"""What is known of a run's end, as data, and on one screen; the controller lays it out as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..terminal import WIDTH, bounded, paragraph, shortened, step, unbroken, wrapped

HEIGHT = 24
LAST_LINES = 6
_EVIDENCE = 3  # lines


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """What is known of a run's end.

    + what: what became of it, a sentence
    + id: of the catalogue's entry; empty where nothing known explains the run
    + rank: the one that failed first
    + evidence: lines of the log, or its last ones where there is no cause
    + facts: what the host says, a sentence each
    + passing: whether the cause mostly goes away by itself
    + secondary: whether what is known only follows from another failure, which no log here shows
    + across: the hosts that trained it together, where it was a run of several
    + stopped: whether somebody stopped it
    + more: the command that shows the whole log, as whoever asked types it
    + ended: when it failed here, in seconds since 1970; None where it did not
    + go_on: how it goes on from its newest checkpoint, the last step; empty where it cannot
    """

    run: str
    what: str
    id: str = ""
    rank: int | None = None
    evidence: tuple[str, ...] = ()
    cause: str = ""
    fix: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    passing: bool = False
    secondary: bool = False
    across: tuple[str, ...] = ()
    ended: float | None = None
    stopped: bool = False
    more: str = ""
    go_on: str = ""

    @property
    def wrong(self) -> bool:
        """Whether anything failed, or makes no progress."""
        return bool(self.cause or self.evidence or self.secondary)

    def summary(self) -> str:
        """Return it in one sentence."""
        return f"{self.what}: {self.cause}" if self.cause else f"{self.what}; no cause is known"

    def as_json(self) -> dict[str, object]:
        """Return it as plain data."""
        return {
            "run": self.run,
            "what": self.what,
            "id": self.id or None,
            "rank": self.rank,
            "evidence": list(self.evidence),
            "cause": self.cause or None,
            "fix": list(self.fix),
            "facts": list(self.facts),
            "passing": self.passing,
            "secondary": self.secondary,
            "across": list(self.across),
            "ended": self.ended,
            "stopped": self.stopped,
            "more": self.more,
            "go_on": self.go_on,
        }

    def screen(self, width: int = WIDTH) -> str:
        """Return it for a person, on one screen: at most 24 lines of 80 columns.

        + width: columns of the terminal; in a narrow one it is longer
        """
        height = HEIGHT if width >= WIDTH else HEIGHT * WIDTH // width
        head = wrapped(self.what, width=width)
        for fact in self.facts:
            head += paragraph(fact, "  ", "  ", width=width)
        shown = [line for each in self.evidence for line in _quoted(each, width)]
        if not self.cause and not self.evidence:
            return "\n".join(head)  # nothing has failed, or nothing was said
        after = paragraph(self.go_on, width=width) if self.go_on else []
        if self.secondary:
            told = ["", "Its own log has only what followed:", *shown, *after]
            return "\n".join([*head, *told])
        if not self.cause:
            known = "No cause found: none of the failures known here explains it."
            told = wrapped(known, width=width)
            whole = wrapped(
                unbroken(f"The log ends with this (`{self.more}` shows it):"), width=width
            )
            lines = [*head, "", *told, "", *whole, *shown]
            return "\n".join([*bounded(lines, height - len(after), "  ..."), *after])
        why = ["", "Why", *wrapped(unbroken(self.cause), "  ", "  ", width=width), "", "What to do"]
        steps = _readable(self.fix, width)
        last = len(step(0, self.go_on, width)) if self.go_on else 0
        room = height - len(head) - len(why) - last
        shown = bounded(shown, max(1, room - sum(map(len, steps[:2]))), "  > ...")
        done = _fitting(steps, room - len(shown))
        if self.go_on:
            done.append(step(len(done) + 1, self.go_on, width))
        return "\n".join([*head, *shown, *why, *(line for each in done for line in each)])


def _quoted(line: str, width: int) -> list[str]:
    text = shortened(line, 3 * (WIDTH - 4))
    most = _EVIDENCE * max(1, WIDTH // width)
    return bounded(wrapped(text, "  > ", "    ", width=width), most, "    ...")


def _readable(fix: Sequence[str], width: int) -> list[list[str]]:
    """Return the steps' lines, without a step whose command is wider than the screen."""
    narrow = [text for text in fix if max(map(len, step(1, text, width))) <= max(width, WIDTH)]
    return [step(number, text, width) for number, text in enumerate(narrow or fix, 1)]


def _fitting(steps: Sequence[list[str]], room: int) -> list[list[str]]:
    """Return the steps that the screen has room for, whole ones, the first of them always."""
    fitting: list[list[str]] = []
    for each in steps:
        room -= len(each)
        if fitting and room < 0:
            break
        fitting.append(each)
    return fitting
