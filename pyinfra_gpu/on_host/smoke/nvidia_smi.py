"""Asking nvidia-smi, whose fields and gaps differ between drivers and GPUs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LIMIT = 20.0
"""Seconds; without persistence a driver first initialises every GPU, which takes some each."""
_INVALID = re.compile(r'Field "([^"]+)" is not a valid field to query')
_BROKEN = re.compile(r"\[(?:GPU requires reset|Reset Required|GPU is lost)\]", re.IGNORECASE)
_NOT_TOLD = re.compile(
    r"|\[.*|n/a|unknown.*|insufficient.*|not (supported|available|found)|err!", re.IGNORECASE
)
_REASONS = (
    *("gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost"),
    *("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"),
    "display_clock_setting",
)
"""The bits of nvml.h's nvmlClocksEventReason*, from the lowest."""


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


def run(
    command: Sequence[str], limit: float = _LIMIT, environment: Mapping[str, str] | None = None
) -> Answer:
    """Run `command` for at most so many seconds. Never raises: the reason becomes the text.

    + environment: None: that of this process
    """
    try:
        done = subprocess.run(
            command,
            env=environment,
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
    """One row a GPU (or process), field name -> text; `error` says what else it said."""

    rows: list[dict[str, str]]
    error: str | None = None


def query(run: Run, what: str, fields: Sequence[str]) -> Table:
    """Ask for `fields`; those that this driver does not know are left out.

    + what: "gpu" or "compute-apps"
    """
    asked = list(fields)
    while asked:
        arguments = [f"--query-{what}={','.join(asked)}", "--format=csv,noheader,nounits"]
        answer = run(["nvidia-smi", *arguments])
        if answer.ok:
            return _parse(answer.text, asked)
        field = _INVALID.search(answer.text)
        if field is None or field[1] not in asked:
            first = next((line.strip() for line in answer.text.splitlines() if line.strip()), "")
            return Table([], first or f"nvidia-smi ended with {answer.code}")
        asked.remove(field[1])
    return Table([], "nvidia-smi knows none of the fields asked for")


def _parse(text: str, asked: Sequence[str]) -> Table:
    """A line without as many values as fields is somebody's message (an error about one GPU, say),
    and becomes the table's error; so does what nvidia-smi says of a GPU that answers no more.
    """
    rows, errors = [], []
    for line in filter(None, map(str.strip, text.splitlines())):
        values = [value.strip() for value in line.split(",")]
        if len(values) == len(asked):
            rows.append(dict(zip(asked, values, strict=True)))
            broken = [value.strip("[]") for value in values if _BROKEN.fullmatch(value)]
            errors += [f"GPU {values[0]}: {each}" for each in broken]
        elif "no running" not in line.lower():
            errors.append(line)
    return Table(rows, next(iter(errors), None))


Fields = Mapping[str, tuple[str, Callable[[str | None], Any]]]
"""A fact's name -> nvidia-smi's field for it, and how that is read."""


def read(run: Run, fields: Fields, what: str = "gpu") -> tuple[list[dict[str, Any]], str | None]:
    """Return the facts of each GPU (or process), and what else nvidia-smi said, as `query` does."""
    table = query(run, what, [field for field, _ in fields.values()])
    facts = [
        {name: convert(row.get(field)) for name, (field, convert) in fields.items()}
        for row in table.rows
    ]
    return facts, table.error


def known(value: str | None) -> str | None:
    """Return a field's text, None where the driver has no value, as in "[N/A]", "[GPU is lost]"."""
    text = (value or "").strip()
    return None if _NOT_TOLD.fullmatch(text) else text


def number(value: str | None) -> float | None:
    """Return the number in a field, None where there is none."""
    found = re.match(r"-?\d+(?:\.\d+)?", known(value) or "")
    return float(found[0]) if found else None


def integer(value: str | None) -> int | None:
    """Return a field as a whole number, None where there is none."""
    found = number(value)
    return None if found is None else int(found)


def bitmask(value: str | None) -> int | None:
    """Return a hexadecimal field ("0x0000000000000004"), None where there is none."""
    text = known(value)
    return int(text, 16) if text and re.fullmatch(r"0[xX][0-9a-fA-F]+", text) else None


def reasons(mask: int) -> list[str]:
    """Return why a clock is lower than it could be; a bit not known is named by its value."""
    bits = [place for place in range(mask.bit_length()) if mask >> place & 1]
    return [
        _REASONS[bit] if bit < len(_REASONS) else f"unknown reason {1 << bit:#x}" for bit in bits
    ]


def pci_address(text: str | None) -> str | None:
    """Return a PCI address in the kernel's form: "0000:01:00.0" for "00000000:01:00.0"."""
    form = r"([0-9a-f]+):([0-9a-f]{2}):([0-9a-f]{2})(?:\.(\d))?"
    found = re.fullmatch(form, (text or "").lower())
    if found is None:
        return None
    return f"{int(found[1], 16):04x}:{found[2]}:{found[3]}.{found[4] or '0'}"
