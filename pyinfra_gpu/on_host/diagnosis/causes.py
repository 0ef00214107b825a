"""The known failures by name: what an entry is, and how its messages are searched for.

The YAML files of `diagnosis/causes` hold one mapping each, name -> entry:

    driver-library-mismatch:         # says the cause, in kebab-case
      match:                         # what programs print: plain text with {fields}
        - "NVRM: API mismatch: the client has the version {library}"
        - "re: a regular expression, every repetition in it bounded"
      cause: The kernel module and the libraries differ.   # the first sentence is the short form
      fix:                           # steps: a sentence, or a sentence with its command apart
        - Reboot into the new driver: {run: sudo reboot}
      when:                          # optional, at most 3: what the log or the host says besides
        - {host: module-differs-from-library, cause: ...}
        - {log: "another line with a {field}", cause: ..., fix: [...]}
      hides: [no-driver]             # entries that are only consequences of this one
      kind: wrapper                  # default root; a wrapper only says that something below failed
      weak: true                     # explains only where nothing else does
      transient: true                # usually passes: `train start --retries` starts again
      source: "where the facts are from"

A field is 1 to 160 characters without blanks, commas, semicolons, brackets and quotes. A space of a
message also matches one line break. `cause` and `fix` may use the fields.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

FILE = "catalogue.json"
"""The packed catalogue, beside this module in a program packed for hosts."""

FIELD = re.compile(r"\{([a-z][a-z_]*)\}")
_VALUE = r"[^\s,;()'\"`<>]{1,160}"
# Of a regular expression: an escape, a class, a bound, plain text, or a character with a meaning.
_PART = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}|[^\\\[\](){}|.^$*+?]+|.", re.DOTALL
)
_PLAIN = re.compile(r"[^\\\[\](){}|.^$*+?]")


@dataclass(frozen=True)
class Message:
    """What a program prints: the longest plain part of it, and what finds all of it."""

    source: str
    anchor: str
    regular: str

    def find(self, text: str) -> Iterator[re.Match[str]]:
        """Return where the message stands in a text."""
        return _compiled(self.regular).finditer(text)


@dataclass(frozen=True)
class Step:
    """What to do: a sentence, and the command that does it, if one does."""

    text: str
    run: str = ""

    def __str__(self) -> str:
        return f"{self.text}: `{self.run}`" if self.run else self.text


@dataclass(frozen=True)
class Hint:
    """What sharpens a cause: another line of the log, or a fact of the host."""

    cause: str
    fix: tuple[Step, ...] = ()
    log: Message | None = None
    host: str = ""


@dataclass(frozen=True)
class Entry:
    """A known failure."""

    name: str
    match: tuple[Message, ...]
    cause: str
    fix: tuple[Step, ...]
    when: tuple[Hint, ...] = ()
    hides: frozenset[str] = frozenset()
    kind: str = "root"
    weak: bool = False
    transient: bool = False

    @property
    def wrapper(self) -> bool:
        """Whether it says only that something below failed."""
        return self.kind == "wrapper"


@dataclass(frozen=True)
class Catalogue:
    """All entries, by name."""

    entries: Mapping[str, Entry] = field(default_factory=dict)

    def hides(self, name: str, other: str) -> bool:
        """Tell whether the failure `other` follows from `name`, also by a third one's way."""
        seen: set[str] = set()
        ahead = [name]
        while ahead:
            following = self.entries[ahead.pop()].hides - seen
            seen |= following
            ahead += following
        return other in seen - {name}


@cache
def _compiled(regular: str) -> re.Pattern[str]:
    return re.compile(regular, re.MULTILINE)


def packed(entries: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Return the entries of the YAML files as `unpacked` reads them; hosts have no YAML."""
    return json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()


def unpacked(data: bytes) -> Catalogue:
    """Return the catalogue in packed data."""
    return Catalogue({name: _entry(name, each) for name, each in json.loads(data).items()})


@cache
def carried() -> Catalogue:
    """Return the catalogue that was packed beside this module; an empty one where none was."""
    try:
        return unpacked(pkgutil.get_data(__package__, FILE) or b"{}")
    except OSError:
        return Catalogue()


def _entry(name: str, written: Mapping[str, Any]) -> Entry:
    known = {key: value for key, value in written.items() if key != "source"}
    known["match"] = tuple(map(message, written["match"]))
    known["hides"] = frozenset(written.get("hides", ()))
    known["when"] = tuple(Hint(**_read(each)) for each in written.get("when", ()))
    return Entry(name, **_read(known))


def _read(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an entry or a hint, with its steps and its line of the log as types."""
    known = {**written, "fix": tuple(map(_step, written.get("fix", ())))}
    return {**known, "log": message(known["log"])} if "log" in known else known


def _step(written: str | Mapping[str, Mapping[str, str]]) -> Step:
    return (
        Step(written)
        if isinstance(written, str)
        else next(Step(text, **command) for text, command in written.items())
    )


def message(source: str) -> Message:
    """Return a message ready to be searched for."""
    if source.startswith("re:"):
        source = source.removeprefix("re:").strip()
        parts = _PART.findall(source)
        broken = (p.replace(" ", r"[ \n]") if _PLAIN.match(p) else p for p in parts)
        return Message(source, max(_literals(parts), key=len, default=""), "".join(broken))
    parts = FIELD.split(source)
    regular = re.escape(parts[0])
    for name, after in zip(parts[1::2], parts[2::2], strict=True):
        again = f"(?P<{name}>" in regular
        regular += (f"(?P={name})" if again else f"(?P<{name}>{_VALUE})") + re.escape(after)
    return Message(source, max(parts[::2], key=len), regular.replace(r"\ ", r"[ \n]"))


def _literals(parts: list[str]) -> list[str]:
    """Return the runs of plain text that every match of a regular expression contains."""
    depth, runs = 0, [""]
    for part, following in zip(parts, [*parts[1:], ""], strict=True):
        depth += (part == "(") - (part == ")")
        if part == "|" and depth == 0:
            return []
        escaped = len(part) == 2 and part[0] == "\\" and not part[1].isalnum()
        literal = part[1:] if escaped else part if _PLAIN.match(part) else ""
        repeated = following[:1] in ("?", "*", "+", "{") and bool(following)
        if not literal or depth:
            runs.append("")
        else:
            runs[-1] += literal[:-1] if repeated else literal
            runs += [""] if repeated else []
    return runs
