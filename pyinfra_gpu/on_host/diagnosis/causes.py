"""The known failures by name: what an entry is, and how its messages are searched for.

The matcher still reads the numbered entries of `diagnosis/catalogue`; these replace them with it.
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

MOST_HINTS = 3
SHORTEST_ANCHOR = 6  # characters of a message that are looked for before anything else

_FIELD = re.compile(r"\{([a-z][a-z_]*)\}")
_VALUE = r"[^\s,;()'\"`<>]{1,160}"
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_REGEX = "re:"
# Of a regular expression: an escape, a class, a bound, plain text, or a character with a meaning.
_PART = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}|[^\\\[\](){}|.^$*+?]+|.", re.DOTALL
)
_PLAIN = re.compile(r"[^\\\[\](){}|.^$*+?]")


class CatalogueError(ValueError):
    """An entry is not as it must be; the message names it and says why."""


@dataclass(frozen=True)
class Message:
    """What a program prints: the longest plain part of it, and what finds all of it."""

    source: str
    anchor: str
    regular: str

    @property
    def regex(self) -> re.Pattern[str]:
        """What is run where the anchor stands; most logs need few of them."""
        return _compiled(self.regular)

    def find(self, text: str) -> Iterator[re.Match[str]]:
        """Return where the message stands in a text."""
        return self.regex.finditer(text)


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
    section: str
    match: tuple[Message, ...]
    cause: str
    fix: tuple[Step, ...]
    when: tuple[Hint, ...] = ()
    hides: frozenset[str] = frozenset()
    kind: str = "root"
    weak: bool = False
    transient: bool = False
    source: str = ""

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
        return other in _below(self, name)


@cache
def _compiled(regular: str) -> re.Pattern[str]:
    return re.compile(regular, re.MULTILINE)


def _below(known: Catalogue, name: str) -> set[str]:
    seen: set[str] = set()
    ahead = [name]
    while ahead:
        entry = known.entries.get(ahead.pop())
        following = entry.hides - seen if entry else frozenset[str]()
        seen |= following
        ahead += following
    return seen - {name}


# -- from and to plain data


def read(sections: Mapping[str, Mapping[str, Any]]) -> Catalogue:
    """Return the catalogue that plain data (section -> name -> entry) means.

    Raises CatalogueError if anything in it is not as it must be.
    """
    entries: dict[str, Entry] = {}
    for section, content in sections.items():
        for name, written in content.items():
            if name in entries:
                raise CatalogueError(f"{section}.yaml: {name} is also in {entries[name].section}")
            try:
                entries[name] = _entry(name, section, written)
            except (CatalogueError, TypeError, re.error) as error:
                raise CatalogueError(f"{section}.yaml: {name}: {error}") from None
    for entry in entries.values():
        for other in sorted(entry.hides - set(entries)):
            raise CatalogueError(f"{entry.section}.yaml: {entry.name} hides {other}: no such entry")
    return Catalogue(entries)


def packed(sections: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Return the data in the form that `unpacked` reads, without what only people read."""
    short = {
        section: {
            name: {key: value for key, value in written.items() if key != "source"}
            for name, written in content.items()
        }
        for section, content in sections.items()
    }
    return json.dumps(short, ensure_ascii=False, separators=(",", ":")).encode()


def unpacked(data: bytes) -> Catalogue:
    """Return the catalogue in packed data, which was checked when it was packed."""
    return Catalogue(
        {
            name: _entry(name, section, written, checked=True)
            for section, content in json.loads(data).items()
            for name, written in content.items()
        }
    )


def carried() -> Catalogue:
    """Return the catalogue that was packed beside this module; an empty one where none was."""
    try:
        data = pkgutil.get_data(__package__, FILE)
    except OSError:
        data = None
    return unpacked(data) if data else Catalogue()


def _entry(name: str, section: str, written: Mapping[str, Any], *, checked: bool = False) -> Entry:
    known = dict(written)
    if not checked:
        _check(name, known)
    known.pop("source", "")
    return Entry(
        name=name,
        section=section,
        match=tuple(map(message, known.pop("match"))),
        cause=known.pop("cause"),
        fix=tuple(map(_step, known.pop("fix"))),
        when=tuple(map(_hint, known.pop("when", ()))),
        hides=frozenset(known.pop("hides", ())),
        **known,
    )


def _step(written: str | Mapping[str, Mapping[str, str]]) -> Step:
    if isinstance(written, str):
        return Step(written)
    (text, command), *others = written.items()
    if others or not isinstance(command, dict) or set(command) != {"run"}:
        raise CatalogueError(f"a step is a sentence, or {{SENTENCE: {{run: COMMAND}}}}: {written}")
    return Step(text, command["run"])


def _hint(written: Mapping[str, Any]) -> Hint:
    known = dict(written)
    log = known.pop("log", None)
    steps = tuple(map(_step, known.pop("fix", ())))
    return Hint(fix=steps, log=message(log) if log else None, **known)


def message(source: str) -> Message:
    """Return a message ready to be searched for."""
    if source.startswith(_REGEX):
        source = source[len(_REGEX) :].strip()
        return Message(source, max(_literals(source), key=len, default=""), _broken_lines(source))
    parts = _FIELD.split(source)
    regular = re.escape(parts[0])
    for name, after in zip(parts[1::2], parts[2::2], strict=True):
        again = f"(?P<{name}>" in regular
        regular += (f"(?P={name})" if again else f"(?P<{name}>{_VALUE})") + re.escape(after)
    return Message(source, max(parts[::2], key=len), regular.replace(r"\ ", r"[ \n]"))


def _broken_lines(regular: str) -> str:
    parts = _PART.findall(regular)
    return "".join(p.replace(" ", r"[ \n]") if _PLAIN.match(p) else p for p in parts)


def _literals(regular: str) -> list[str]:
    """Return the runs of plain text that every match of a regular expression contains."""
    parts = _PART.findall(regular)
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


# -- what must be so, asked when the data is packed

_KEYS = {"match", "cause", "fix", "when", "hides", "kind", "weak", "transient", "source"}
_REQUIRED = ("match", "cause", "fix", "source")


def _check(name: str, written: Mapping[str, Any]) -> None:
    if not _NAME.fullmatch(name):
        raise CatalogueError("a name is lower case, in kebab-case")
    if unknown := sorted(set(written) - _KEYS):
        raise CatalogueError(f"has no field {unknown[0]}")
    if missing := [key for key in _REQUIRED if not written.get(key)]:
        raise CatalogueError(f"needs {missing[0]}")
    if written.get("kind", "root") not in ("root", "wrapper"):
        raise CatalogueError("kind is root or wrapper")
    hints = written.get("when", ())
    if len(hints) > MOST_HINTS:
        raise CatalogueError(f"has more than {MOST_HINTS} hints")
    fields: set[str] = set()
    for source in written["match"]:
        fields |= _checked(source)
    _check_fields(fields, written["cause"], written["fix"])
    for hint in hints:
        _check_hint(hint, fields)


def _check_hint(hint: Mapping[str, Any], fields: set[str]) -> None:
    if set(hint) - {"cause", "fix", "log", "host"} or ("log" in hint) == ("host" in hint):
        raise CatalogueError(f"a hint has cause, one of log and host, and perhaps fix: {hint}")
    if "host" in hint and hint["host"] not in HOST_FACTS:
        raise CatalogueError(f"{hint['host']} is none of the host facts {', '.join(HOST_FACTS)}")
    own = _checked(hint["log"]) if "log" in hint else set()
    _check_fields(fields | own, hint["cause"], hint.get("fix", ()))


def _checked(source: str) -> set[str]:
    """Check that a message can be searched for in bounded time; return its fields."""
    found = message(source)
    if len(found.anchor) < SHORTEST_ANCHOR:
        raise CatalogueError(f"holds no {SHORTEST_ANCHOR} plain characters in a row: {source}")
    if source.startswith(_REGEX) and {"*", "+"} & set(_PART.findall(found.source)):
        raise CatalogueError(f"repeats without a bound: {source}")
    return set(found.regex.groupindex)


def _check_fields(fields: set[str], cause: str, fix: Any) -> None:
    steps = tuple(map(_step, fix))
    for text in (cause, *(each.text for each in steps), *(each.run for each in steps)):
        for name in _FIELD.findall(text):
            if name not in fields:
                raise CatalogueError(f"uses {{{name}}}, which no message has: {text}")


HOST_FACTS = (
    "module-differs-from-library",
    "module-missing",
    "gpu-lost",
    "shm-small",
    "shm-full",
    "secure-boot",
    "compat-on-path",
    "disk-full",
    "memory-low",
    "gpu-busy",
    "nouveau-loaded",
    "no-libcuda",
)
"""What a hint may ask the host."""
