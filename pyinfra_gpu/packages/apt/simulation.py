"""What apt-get says it would do, and which files it would fetch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pyinfra_gpu.packages.model import Change, Simulation

_INSTALL = re.compile(
    r"Inst (?P<name>\S+)(?: \[(?P<old>[^\]]+)\])? "
    r"\((?P<new>\S+)(?: (?P<from>.*?))?(?: ?\[(?P<arch>[^\]]+)\])?\)(?: \[.*)?"
)
_REMOVE = re.compile(r"(?:Remv|Purg) (?P<name>\S+) \[(?P<old>[^\]]+)\].*")
_FETCH = re.compile(r"'(?P<uri>[^']+)' (?P<file>\S+) \d+(?: .*)?")


def read(lines: Sequence[str], mark: str) -> Simulation | None:
    """Read what `on_host/packages/apt/simulate.sh` printed; None where it is cut off.

    + mark: the line between its parts
    """
    parts: list[list[str]] = [[]]
    for line in lines:
        if line == mark:
            parts.append([])
        else:
            parts[-1].append(line)
    if len(parts) != 4:
        return None
    changes, held, uris, _ = parts
    return replace(
        parse(changes),
        fetches=parse_fetches(uris),
        held=frozenset(line.strip() for line in held if line.strip()),
    )


def parse(lines: Sequence[str]) -> Simulation:
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


def _problems(lines: Sequence[str]) -> tuple[str, ...]:
    """Return apt's errors; what it says on broken dependencies comes before them, indented."""
    errors = [line[2:].strip() for line in lines if line.startswith("E:")]
    dependencies = [
        " ".join(line.split())
        for line in lines
        if re.match(r" \S.*: (Depends|PreDepends|Conflicts|Breaks): ", line)
    ]
    return tuple([*dependencies, *errors] if errors else [])


def parse_fetches(lines: Sequence[str]) -> dict[str, str]:
    """Read `apt-get --print-uris`: package name -> URI.

    apt names the files NAME_VERSION_ARCHITECTURE.deb, with ":" written as %3a.
    """
    found = {}
    for line in lines:
        if match := _FETCH.fullmatch(line.strip()):
            found[match["file"].partition("_")[0]] = match["uri"]
    return found
