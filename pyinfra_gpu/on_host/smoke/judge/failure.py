"""Which rank ended a run that did not finish, and how: from journals and torchrun's own summary.

A rank that loses its peer fails too, and torchrun then ends the rest. So the order is: who was
killed, who left without a word, who raised first.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..journal import Journal

_SUMMARY = re.compile(
    r"^\s*(?:rank|process)\s*:\s*(?P<rank>\d+)\b.*\n\s*exitcode\s*:\s*(?P<code>-?\d+)\b",
    re.MULTILINE,
)
_ENDED_BY_TORCHRUN = -signal.SIGTERM


@dataclass(frozen=True)
class Failure:
    """One sentence on how the run ended, and the rank to look at (None: all of them)."""

    sentence: str
    rank: int | None


@dataclass(frozen=True)
class Names:
    """What to call a process that keeps a journal, and the program that starts them all."""

    one: str
    all: str
    starter: str


RANKS = Names("rank", "all ranks", "torchrun")
SINGLES = Names("process", "all processes", "their starter")


def exit_codes(log: str) -> dict[int, int]:
    """Return rank -> exit code (negative: signal) of those that the starter's log calls failed."""
    return {int(found["rank"]): int(found["code"]) for found in _SUMMARY.finditer(log)}


def at_deadline(
    journals: Mapping[int, Journal],
    ranks: int,
    deadline: int,
    names: Names = RANKS,
    whose: str = "the deadline",
) -> Failure:
    """Explain a run that was still going at its deadline: who had come least far."""
    missing = [rank for rank in range(ranks) if rank not in journals]
    if missing:
        sentence = f"{names.one} {missing[0]} had not started after {deadline} s ({whose})"
        return Failure(sentence, missing[0])
    least = min(len(journal.steps) for journal in journals.values())
    behind = [journal for journal in journals.values() if len(journal.steps) == least]
    step = behind[0].step
    if len(behind) == len(journals):
        every = f"{names.all} were" if len(journals) > 1 else f"{names.one} 0 was"
        return Failure(f"{every} still at '{step}' after {deadline} s ({whose})", None)
    rank = behind[0].rank
    sentence = f"{names.one} {rank} was still at '{step}' after {deadline} s ({whose})"
    return Failure(sentence, rank)


def ended(
    journals: Mapping[int, Journal], ranks: int, code: int, log: str, names: Names = RANKS
) -> Failure:
    """Explain a run whose starter ended with exit code `code` before all work was done."""
    codes = exit_codes(log)
    unfinished = [journal for journal in journals.values() if not journal.finished]
    for suspects in (_killed(unfinished, codes), _silent(unfinished, codes), _raised(unfinished)):
        if suspects:
            return _explain(suspects[0], codes, names)
    missing = [rank for rank in range(ranks) if rank not in journals]
    if missing:
        ending = f"{names.starter} ended with exit code {code}"
        sentence = f"{names.one} {missing[0]} never started, {ending}"
        return Failure(sentence, missing[0] if missing[0] in codes else None)
    for rank, exit_code in codes.items():
        done = rank in journals and journals[rank].finished
        if done and exit_code != _ENDED_BY_TORCHRUN:
            sentence = f"{names.one} {rank} {_manner(exit_code)} after its work was done"
            return Failure(sentence, rank)
    if unfinished:
        return _explain(unfinished[0], codes, names)
    return Failure(f"{names.starter} ended with exit code {code}", None)


def _killed(journals: Sequence[Journal], codes: Mapping[int, int]) -> list[Journal]:
    """Return who was ended by a signal, not by torchrun, and not after an exception of its own:
    a rank that leaves gloo by way of an exception may abort on its way out."""
    killed = [
        journal
        for journal in journals
        if journal.error is None
        and codes.get(journal.rank, 0) < 0
        and codes[journal.rank] != _ENDED_BY_TORCHRUN
    ]
    return sorted(killed, key=_gone)


def _silent(journals: Sequence[Journal], codes: Mapping[int, int]) -> list[Journal]:
    silent = [
        journal
        for journal in journals
        if journal.error is None and codes.get(journal.rank) != _ENDED_BY_TORCHRUN
    ]
    return sorted(silent, key=_gone)


def _raised(journals: Sequence[Journal]) -> list[Journal]:
    raised = [journal for journal in journals if journal.error_time is not None]
    return sorted(raised, key=lambda journal: journal.error_time or 0.0)


def _gone(journal: Journal) -> float:
    return journal.gone if journal.gone is not None else float("inf")


def _explain(journal: Journal, codes: Mapping[int, int], names: Names) -> Failure:
    who = f"{names.one} {journal.rank} (pid {journal.pid})"
    if journal.error is not None:
        first_line = journal.error.splitlines()[0]
        return Failure(f"{who} raised at '{journal.step}': {first_line}", journal.rank)
    code = codes.get(journal.rank)
    manner = "ended without an error" if code is None else _manner(code)
    return Failure(f"{who} {manner} at '{journal.step}', before its work was done", journal.rank)


def _manner(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"was ended by signal {-code} ({name})"
