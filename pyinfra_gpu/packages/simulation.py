"""What apt-get says it would do, and which files it would fetch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pyinfra_gpu.packages.model import Change, Simulation

_INSTALL = re.compile(
    r"Inst (?P<name>\S+)(?: \[(?P<old>[^\]]+)\])? "
    r"\((?P<new>\S+)(?: (?P<labels>.*?))?(?: ?\[(?P<arch>[^\]]+)\])?\)(?: \[.*)?"
)
_REMOVE = re.compile(r"(?:Remv|Purg) (?P<name>\S+) \[(?P<old>[^\]]+)\].*")
_FETCH = re.compile(
    r"'(?P<uri>[^']+)' (?P<name>[^_\s]+)_[^_\s]+_(?P<arch>[^_\s]+)\.deb \d+(?: .*)?"
)
_GONE = re.compile(
    r" +(?:\S+ : )?(?:Pre)?Depends: (?P<name>\S+) (?:\(= (?P<version>\S+)\) )?"
    r"but it is not (?:going to be )?installed"
)
_UNMET = re.compile(r" \S.*: (Depends|PreDepends|Conflicts|Breaks): ")


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
        if not line.startswith(("Inst ", "Remv ", "Purg ")):
            continue
        if match := _INSTALL.fullmatch(line) or _REMOVE.fullmatch(line):
            changes.append(_change(match.groupdict()))
        else:
            odd.append(line)
    gone = [match for line in lines if (match := _GONE.fullmatch(line.rstrip()))]
    return Simulation(
        changes=tuple(changes),
        problems=_problems(lines),
        odd=tuple(odd),
        unmet=tuple(
            dict.fromkeys(
                f"{each['name']}={each['version']}" if each["version"] else each["name"]
                for each in gone
            )
        ),
    )


def _change(found: dict[str, str | None]) -> Change:
    # "LABEL:VERSION/ARCHIVE, LABEL:..."; a source without a label shows as its archive
    labels = [each.partition(":")[0].strip() for each in (found.get("labels") or "").split(",")]
    return Change(
        name=found["name"] or "",
        old=found["old"],
        new=found.get("new"),
        labels=tuple(dict.fromkeys(filter(None, labels))),
        arch=found.get("arch"),
    )


def _problems(lines: Sequence[str]) -> tuple[str, ...]:
    """Return apt's errors; what it says on broken dependencies comes before them, indented."""
    errors = [line[2:].strip() for line in lines if line.startswith("E:")]
    unmet = [" ".join(line.split()) for line in lines if _UNMET.match(line)]
    return tuple([*unmet, *errors] if errors else [])


def parse_fetches(lines: Sequence[str]) -> dict[tuple[str, str], str]:
    """Read `apt-get --print-uris`, which names files NAME_VERSION_ARCHITECTURE.deb."""
    matches = (_FETCH.fullmatch(line.strip()) for line in lines)
    return {(each["name"], each["arch"]): each["uri"] for each in matches if each}
