"""Asking nvidia-smi, whose fields, spellings and gaps differ between drivers and GPUs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_LIMIT = 20.0
"""Seconds; without persistence a driver first initialises every GPU, which takes some each."""
_INVALID = re.compile(r'Field "([^"]+)" is not a valid field to query')
_BROKEN = re.compile(r"\[(?:GPU requires reset|Reset Required|GPU is lost)\]", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")

# Fields that drivers have renamed: the present name, then the one older drivers know.
_OLDER = {"clocks_event_reasons.active": "clocks_throttle_reasons.active"}


@dataclass(frozen=True)
class Answer:
    """What a command printed; `code` is None where it could not be run or did not end."""

    code: int | None
    text: str

    @property
    def ok(self) -> bool:
        """Return whether the command succeeded."""
        return self.code == 0


Run = Callable[[Sequence[str]], Answer]
"""How a command is run; tests hand in their own."""


def run(command: Sequence[str], limit: float = _LIMIT) -> Answer:
    """Run `command` for at most so many seconds. Never raises: the reason becomes the text."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(None, f"{command[0]} did not answer within {limit:.0f} s")
    except OSError as error:
        return Answer(None, f"{command[0]} cannot be run: {error.strerror}")
    return Answer(done.returncode, done.stdout.decode(errors="replace"))


@dataclass(frozen=True)
class Table:
    """One row a GPU (or process), field name -> text; `error` says why there is none."""

    rows: list[dict[str, str]]
    error: str | None = None


def query(run: Run, what: str, fields: Sequence[str]) -> Table:
    """Ask for `fields`; those this driver does not know are left out, or asked by an older name.

    + what: "gpu" or "compute-apps"
    """
    asked = list(fields)
    while asked:
        arguments = [f"--query-{what}={','.join(asked)}", "--format=csv,noheader,nounits"]
        answer = run(["nvidia-smi", *arguments])
        if answer.ok:
            return parse(answer.text, asked, fields)
        unknown = _INVALID.search(answer.text)
        if unknown is None or unknown[1] not in asked:
            return Table([], first_line(answer.text) or f"nvidia-smi ended with {answer.code}")
        place = asked.index(unknown[1])
        asked[place : place + 1] = [_OLDER[unknown[1]]] if unknown[1] in _OLDER else []
    return Table([], "nvidia-smi knows none of the fields asked for")


def parse(text: str, asked: Sequence[str], fields: Sequence[str]) -> Table:
    """Return the rows of nvidia-smi's CSV `text`, keyed by the names in `fields`.

    A line without as many values as fields is somebody's message (an error about one GPU, say),
    and becomes the table's error; so does what nvidia-smi says of a GPU that answers no more.
    """
    present = {older: name for name, older in _OLDER.items() if name in fields}
    rows, stray = [], None
    for line in filter(None, map(str.strip, text.splitlines())):
        values = [value.strip() for value in line.split(",")]
        if len(values) == len(asked):
            named = zip(asked, values, strict=True)
            rows.append({present.get(name, name): value for name, value in named})
            broken = next((value for value in values if _BROKEN.fullmatch(value)), None)
            if broken is not None:
                stray = stray or f"GPU {values[0]}: {broken.strip('[]')}"
        elif "no running" not in line.lower():
            stray = stray or line
    return Table(rows, stray)


def known(value: str | None) -> str | None:
    """Return a field's text, None where the driver has no value.

    What stands in brackets is what nvidia-smi says in place of one: "[N/A]", "[Not Supported]",
    "[GPU requires reset]", "[GPU is lost]", "[Insufficient Permissions]", "[Unknown Error]".
    """
    text = (value or "").strip()
    if text.startswith("["):
        return None
    bare = text.lower()
    missing = ("", "n/a", "not supported", "not available", "not found", "err!")
    return None if bare in missing or bare.startswith(("unknown", "insufficient")) else text


def number(value: str | None) -> float | None:
    """Return the number in a field, None where there is none."""
    text = known(value)
    found = _NUMBER.match(text) if text else None
    return float(found[0]) if found else None


def integer(value: str | None) -> int | None:
    """Return a field as a whole number, None where there is none."""
    found = number(value)
    return None if found is None else int(found)


def bitmask(value: str | None) -> int | None:
    """Return a hexadecimal field ("0x0000000000000004"), None where there is none."""
    text = known(value)
    return int(text, 16) if text and re.fullmatch(r"0[xX][0-9a-fA-F]+", text) else None


def versions(text: str) -> dict[str, str]:
    """Return what `nvidia-smi --version` names, lower-case name -> version.

    Drivers before R545 do not know the option and print their usage: then nothing is found.
    """
    found = re.findall(r"^\s*([A-Za-z][A-Za-z -]*?) version\s*:\s*([\d.]+)\s*$", text, re.M | re.I)
    return {name.lower(): version for name, version in found}


def process_types(text: str) -> dict[int | None, str]:
    """Return what `nvidia-smi -q -d PIDS` says of each process, process id -> type.

    "C" computes, "G" draws, "C+G" does both, as desktop programs do; "M+C" computes through MPS.
    """
    found = re.findall(r"Process ID\s*:\s*(\d+)\s+Type\s*:\s*(\S+)", text)
    return {int(pid): kind for pid, kind in found}


def matrix(text: str) -> dict[str, str]:
    """Return the GPU-to-GPU part of `nvidia-smi topo`, as "0-1" -> "NV18", "PHB", "GNS", ...

    Header cells are underlined with escapes on a terminal and on some drivers off it too.
    """
    columns: list[str] = []
    pairs = {}
    for line in _ANSI.sub("", text).splitlines():
        cells = line.split()
        if not columns and cells[:1] == ["GPU0"]:
            columns = [cell for cell in cells if re.fullmatch(r"GPU\d+", cell)]
        elif columns and cells and re.fullmatch(r"GPU\d+", cells[0]):
            row = int(cells[0][3:])
            for column, cell in zip(columns, cells[1:], strict=False):
                if row < int(column[3:]):
                    pairs[f"{row}-{column[3:]}"] = cell
    return pairs


def first_line(text: str) -> str:
    """Return the first line that says anything."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
