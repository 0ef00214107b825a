"""What a host may write, and what must never reach a terminal."""

from __future__ import annotations

import re

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
HOSTILE = {
    "colour": "\x1b[31mred\x1b[0m",
    "clear": "\x1b[2J\x1b]0;gotcha\x07a",
    "half an escape": "a\x1b",
    "C1": "a\x9b2Jb",
    "another line": "good\rbad\ngood  as declared\u2028c",
    "backwards": "a\u202eb\u2066",
    "half a character": "a\ud7ff\x00b",
    "markup": "[red]x[/red] [link=file:///etc/passwd]y[/link] :skull: [/]",
    "wide": "\u4e00" * 300,
    "long": "x" * 5000,
}
