"""What `apt-get --simulate` says it would do, and which files it would fetch."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_INSTALL = re.compile(
    r"Inst (?P<name>\S+)(?: \[(?P<old>[^\]]+)\])? "
    r"\((?P<new>\S+)(?: (?P<from>.*?))?(?: ?\[(?P<arch>[^\]]+)\])?\)(?: \[.*)?"
)
_REMOVE = re.compile(r"(?:Remv|Purg) (?P<name>\S+) \[(?P<old>[^\]]+)\].*")
_FETCH = re.compile(r"'(?P<uri>[^']+)' (?P<file>\S+) \d+(?: .*)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One package that would change.

    + name: with ":ARCHITECTURE" where apt writes it
    + old: the version that is there, None if it is not
    + new: the version that would be, None if it is removed
    + labels: what the sources that offer the new version call themselves; () where it is removed
    """

    name: str
    old: str | None
    new: str | None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulation:
    """A whole transaction.

    + problems: apt's own errors, one text each; with any of them the changes mean nothing
    + odd: lines that could not be understood, so that nothing may be done
    + fetches: URI of each file that is not there yet, by package name
    """

    changes: tuple[Change, ...] = ()
    problems: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()
    fetches: dict[str, str] = field(default_factory=dict)


def parse(lines: list[str]) -> Simulation:
    """Read the output of `LC_ALL=C apt-get --simulate ...`, both its channels."""
    changes, odd = [], []
    for line in (line.rstrip() for line in lines):
        if line.startswith("Inst "):
            match = _INSTALL.fullmatch(line)
        elif line.startswith(("Remv ", "Purg ")):
            match = _REMOVE.fullmatch(line)
        else:
            continue
        if match is None:
            odd.append(line)
        else:
            changes.append(_change(match))
    return Simulation(changes=tuple(changes), problems=_problems(lines), odd=tuple(odd))


def _change(match: re.Match[str]) -> Change:
    found = match.groupdict()
    return Change(
        name=found["name"],
        old=found["old"],
        new=found.get("new"),
        labels=_labels(found.get("from") or ""),
    )


def _labels(text: str) -> tuple[str, ...]:
    """Read "LABEL:VERSION/ARCHIVE, LABEL:..." - a source without a label shows as its archive."""
    return tuple(dict.fromkeys(part.partition(":")[0].strip() for part in text.split(",") if part))


def _problems(lines: list[str]) -> tuple[str, ...]:
    """Return apt's errors; what it says on broken dependencies comes before them, indented."""
    errors = [line[2:].strip() for line in lines if line.startswith("E:")]
    dependencies = [
        " ".join(line.split())
        for line in lines
        if re.match(r" \S.*: (Depends|PreDepends|Conflicts|Breaks): ", line)
    ]
    return tuple([*dependencies, *errors] if errors else [])


def parse_fetches(lines: list[str]) -> dict[str, str]:
    """Read `apt-get --print-uris`: package name -> URI.

    apt names the files NAME_VERSION_ARCHITECTURE.deb, with ":" written as %3a.
    """
    found = {}
    for line in lines:
        if match := _FETCH.fullmatch(line.strip()):
            found[match["file"].partition("_")[0]] = match["uri"]
    return found
