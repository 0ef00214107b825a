"""Logs made to slow the search down are read in time that grows with their size and no faster."""

from __future__ import annotations

import random
import time

import pytest

from pyinfra_gpu.diagnosis.catalogue import catalogue
from pyinfra_gpu.diagnosis.matcher import explain

SIZE = 320_000
BOUND = 5.0  # seconds of processor time; on a quiet core it is under 1
# A log of a quarter of the size takes a quarter of the time. What grows with the square of the size
# and takes twice as long as all the rest is noticed here; a pattern that looks at each rest of a
# line anew takes a thousand times as long. All samples do not fit into a quarter, and what is found
# of the catalogue is compared with itself: they have the bound, and some of them the growth.
PARTS = 4
GROWTH, START = 2, 0.1  # how much more than that is allowed, and seconds that any log takes
TRIES = 3  # of which one has to do: other processes slow this one down

KNOWN = catalogue()
SAMPLES = [sample for entry in KNOWN.entries for sample in entry.samples]
ANCHORS = sorted({pattern.anchor for entry in KNOWN.entries for pattern in entry.patterns})
TRACEBACK = "Traceback (most recent call last):\n"


def shuffled(lines: list[str]) -> str:
    choice = random.Random(4)
    return "\n".join(choice.choice(lines) for _ in range(SIZE // 40))


TEXTS = {
    "one line of one character": "x",
    "one line of words": "CUDA error: ",
    "one line of anchors": "".join(ANCHORS),
    "a line of each anchor": "\n".join(ANCHORS) + "\n",
    "all samples": "\n".join(SAMPLES) + "\n",
    "samples in any order": shuffled(SAMPLES[::16]),
    "very many ranks": "".join(
        f"[rank{n % 90000}]: {ANCHORS[n % len(ANCHORS)]}\n" for n in range(SIZE // 40)
    ),
    "only colours": "\x1b[31m",
    "colours that never end": "\x1b[0;",
    "titles that never end": "\x1b]0;",
    "only tracebacks": TRACEBACK,
    "unknown exceptions": f"{TRACEBACK}RuntimeError: x\n",
    "known exceptions": f"{TRACEBACK}RuntimeError: CUDA out of memory. Tried to allocate 1 GiB\n",
    "one chain": "ValueError: x\nDuring handling of the above exception, another exception\n",
    "crashes": "Fatal Python error: Aborted\nCurrent thread 0x1 (most recent call first):\n",
    "summaries": "Root Cause (first observed failure):\n[0]:\n  rank      : 1\n  exitcode  : 1\n",
    "empty lines": "\n",
    "short lines": "ab\n",
    "blanks": " ",
    "zeros": "\x00",
    "brackets": "[[[[((((",
    "numbers": "1234567890 ",
    "dots": "a.",
    "wrapped": "a" * 80 + "\n",
    "progress": "step 1 loss: 2\n",
    "prefixes": "2026-11-21 12:00:00 kernel: stdout F x | [1] ",
}


def seconds(text: str) -> float:
    start = time.process_time()
    explain(text)
    return time.process_time() - start


@pytest.mark.parametrize("name", TEXTS)
def test_the_time_grows_no_faster_than_the_log(name: str) -> None:
    unit = TEXTS[name]
    text = (unit * (SIZE // len(unit) + 1))[:SIZE]
    tries = []
    for _ in range(TRIES):
        if (whole := seconds(text)) < START:
            return
        if whole < BOUND and name == "all samples":
            return
        part = seconds(text[: SIZE // PARTS])
        if whole < min(BOUND, GROWTH * PARTS * part + START):
            return
        tries.append(f"{whole:.2f} s, a quarter of it {part:.2f} s")
    pytest.fail(f"{name}: " + "; ".join(tries))
