"""Asking nvidia-smi, whose gaps differ between drivers and GPUs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_LIMIT = 20.0
"""Seconds; without persistence a driver first initialises every GPU, which takes some each."""
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
Row = Mapping[str, str | None]
"""nvidia-smi's fields of one GPU or process -> their text, None where it is not told."""


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


def read(run: Run, fields: Sequence[str], what: str = "gpu") -> tuple[list[Row], str | None]:
    """Return these fields of each GPU (or process), and what else nvidia-smi said.

    + what: "gpu" or "compute-apps"
    """
    arguments = [f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    answer = run(["nvidia-smi", *arguments])
    lines = [line.strip() for line in answer.text.splitlines() if line.strip()]
    if not answer.ok:
        return [], next(iter(lines), f"nvidia-smi ended with {answer.code}")
    rows: list[Row] = []
    errors = []
    for line in lines:
        values = [value.strip() for value in line.split(",")]
        if len(values) == len(fields):
            rows.append(dict(zip(fields, map(known, values), strict=True)))
            broken = [value.strip("[]") for value in values if _BROKEN.fullmatch(value)]
            errors += [f"GPU {values[0]}: {each}" for each in broken]
        elif "no running" not in line.lower():
            errors.append(line)  # somebody's message, an error about one GPU, say
    return rows, next(iter(errors), None)


def known(value: str | None) -> str | None:
    """Return a field's text, None where the driver has no value, as in "[N/A]", "[GPU is lost]"."""
    text = (value or "").strip()
    return None if _NOT_TOLD.fullmatch(text) else text


def number(value: str | None) -> float | None:
    """Return the number in a field, None where there is none."""
    found = re.match(r"-?\d+(?:\.\d+)?", known(value) or "")
    return float(found[0]) if found else None


def integer(value: str | None) -> int | None:
    """Return a field as a whole number, also a hexadecimal one ("0x04"); None if there is none."""
    found = re.match(r"(0[xX][0-9a-fA-F]+)|-?\d+", known(value) or "")
    return int(found[0], 16 if found[1] else 10) if found else None


def reasons(mask: int) -> list[str]:
    """Return why a clock is lower than it could be."""
    return [name for bit, name in enumerate(_REASONS) if mask >> bit & 1]
