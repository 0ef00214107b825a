"""One root cause out of what a failed run left, and why the rest is not it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .deciding import decide
from .elsewhere import Told
from .entries import Catalogue, Kind
from .hits import Hit, search
from .host_facts import HostFacts
from .log import Line, Source, read, streams, unwrapped
from .torchrun import attributed

TAIL = 30  # lines shown of a log that nothing explains
LONGEST_EVIDENCE = 400  # characters
LONGEST_DECIDING = 200  # characters of the line that decides how it is read

# What a shell takes literally: people paste the steps, and what stands between backquotes.
_SAFE = re.compile(r"[\w./:@%+,-]{1,200}")
# What a sentence may say of a log besides: a range of versions (">=3.10"), a state of two words.
_SAID = re.compile(r"[^`\n]{0,199}[^`\s]")


@dataclass(frozen=True)
class Finding:
    """A cause, in the words of the catalogue, with the line that shows it.

    + fix: what to do, as it is typed in a shell
    + run_fix: the same about a run of the launcher, which knows what its braces stand for, see
      `steps`
    + clause, remedy: the cause, and what to do, in one clause each; empty where the catalogue has
      only the whole of it
    + passing: whether it mostly goes away by itself
    + decided_by: another line of the log that decides which reading it is; empty where none does
    """

    id: str
    layer: str
    kind: Kind
    evidence: str
    cause: str
    fix: tuple[str, ...]
    rank: int | None
    clause: str = ""
    remedy: str = ""
    passing: bool = False
    decided_by: str = ""
    run_fix: tuple[str, ...] = ()

    @property
    def shown_by(self) -> tuple[str, ...]:
        """The lines of the log that show it."""
        return (self.evidence, self.decided_by) if self.decided_by else (self.evidence,)


@dataclass(frozen=True)
class Diagnosis:
    """What a log means; `findings` is empty where nothing known explains it.

    + suppressed: entries that were seen but are consequences, repetitions or remarks
    + tail: the log's last lines, where there is no finding
    """

    findings: tuple[Finding, ...]
    suppressed: tuple[str, ...]
    tail: tuple[str, ...]

    @property
    def unclassified(self) -> bool:
        """Tell whether nothing known explains the log."""
        return not self.findings

    def as_json(self) -> dict[str, object]:
        """Return the document that `pyinfra-gpu explain --json` prints."""
        findings = [
            {
                "id": finding.id,
                "layer": finding.layer,
                "kind": finding.kind,
                "evidence": finding.evidence,
                "decided_by": finding.decided_by,
                "cause": finding.cause,
                "fix": list(finding.fix),
            }
            for finding in self.findings
        ]
        return {
            "findings": findings,
            "suppressed": list(self.suppressed),
            "unclassified": self.unclassified,
            "tail": list(self.tail),
        }


def diagnose(
    sources: Sequence[Source], known: Catalogue, facts: HostFacts | None = None
) -> Diagnosis:
    """Return what the files that a run left mean, together.

    + sources: in the order in which they are to be believed where two say equally much
    + known: the catalogue to use
    + facts: of the host they come from, which decide between two readings of a message
    """
    lines = read(sources)
    facts = facts or HostFacts()
    diagnosis = _judged(lines, known, facts)
    joined = unwrapped(lines)
    second = _judged(joined, known, facts) if joined else diagnosis
    return second if _says_more(second, diagnosis) else diagnosis


def _says_more(second: Diagnosis, first: Diagnosis) -> bool:
    """Tell whether the second reading has a cause where the first has none, or only its effects."""
    roots = {finding.id for finding in first.findings if finding.kind == "root"}
    causes = any(finding.kind == "root" for finding in second.findings)
    return causes and roots <= set(second.suppressed)


def _judged(lines: Sequence[Line], known: Catalogue, facts: HostFacts) -> Diagnosis:
    lines, summary = attributed(lines)
    found = search(streams(lines), known, facts)
    verdicts = decide(found, summary, known)
    findings = tuple(_finding(hit, _telling(hit, found.hits), kind) for hit, kind in verdicts)
    named = {finding.id for finding in findings}
    suppressed = dict.fromkeys(hit.entry.id for hit in found.hits if hit.entry.id not in named)
    tail = () if findings else tuple(line.whole.rstrip() for line in lines[-TAIL:])
    return Diagnosis(findings, tuple(suppressed), tail)


def _telling(hit: Hit, hits: Sequence[Hit]) -> Hit:
    """Return the hit itself or, if it leaves open which case it is, another one that says it.

    Of several, the case that the catalogue gives first, said by the same rank or by none.
    """
    entry, group = hit.entry, hit.entry.case_group
    if hit.case or group is None or hit.groups.get(group):
        return hit
    ranks = (hit.rank, None)
    others = [
        (entry.cases.index(other.case), other.number, other)
        for other in hits
        if other.entry is entry and other.case in entry.cases and other.case
        if other.kind == hit.kind and other.rank in ranks
    ]
    return min(others, key=lambda item: item[:2], default=(0, 0, hit))[2]


def _finding(hit: Hit, telling: Hit, kind: Kind) -> Finding:
    meaning = telling.case or telling.entry
    told = telling.told
    groups = {**hit.groups, **{name: value for name, value in telling.groups.items() if value}}
    groups |= {name: value for name, value in (told.groups if told else {}).items() if value}
    return Finding(
        id=hit.entry.id,
        layer=hit.entry.layer,
        kind=kind,
        evidence=_evidence(hit),
        cause=_filled(meaning.cause, groups, said=True),
        fix=tuple(_filled(step.in_shell, groups) for step in meaning.fix if step.shell),
        rank=hit.rank,
        clause=_filled(hit.entry.clause, groups, said=True),
        remedy=_filled(hit.entry.remedy, groups),
        passing=hit.entry.passing,
        decided_by=_decided_by(hit, told),
        run_fix=tuple(_filled(step.run, groups) for step in meaning.fix if step.run),
    )


def _decided_by(hit: Hit, told: Told | None) -> str:
    """Return the other line that decides; nothing where the message itself says it."""
    if told is None or any(told.line == line.whole.strip() for line in hit.lines):
        return ""
    return told.line[:LONGEST_DECIDING]


def _evidence(hit: Hit) -> str:
    """Return the message's lines; of a very long one, what is around the message."""
    text = " ".join(line.whole.strip() for line in hit.lines)
    if len(text) <= LONGEST_EVIDENCE:
        return text
    message = hit.stream.text.lines[hit.span[0] : hit.span[1]].split("\n")[0]
    place = max(0, text.find(message[:40]))
    if place + len(message) <= LONGEST_EVIDENCE - 3:
        return f"{text[: LONGEST_EVIDENCE - 3]}..."
    start = max(0, place - LONGEST_EVIDENCE // 4)
    return f"...{text[start : start + LONGEST_EVIDENCE - 6]}..."


def _filled(text: str, groups: Mapping[str, str | None], *, said: bool = False) -> str:
    """Put the log's values into a text; into a step only such as a shell takes literally.

    + said: whether it is a sentence, which is read; what it has between backquotes is typed
    """

    def value(found: re.Match[str]) -> str:
        word = groups.get(found[1])
        typed = not said or text.count("`", 0, found.start()) % 2 == 1
        fits = (_SAFE if typed else _SAID).fullmatch(word) if word else None
        return fits[0] if fits else found[1].upper()

    return re.sub(r"<([a-z_]+)>", value, text)
