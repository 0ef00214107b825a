"""Where apt takes packages from, in both forms of its lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pyinfra_gpu.packages.model import Source

_Entry = tuple[str, str | None, tuple[str, ...], tuple[str, ...]]


def read(file: str, lines: Sequence[str]) -> Iterator[Source]:
    """Read the enabled sources of binary packages off one list.

    + file: its path; ".sources" at its end tells the newer form
    """
    reader = _stanzas if file.endswith(".sources") else _lines
    for uri, key, suites, components in reader(lines):
        if not components:
            suites = ()  # of a flat repository it is a folder
        yield Source(file=file, uri=uri, signed_by=key, suites=suites, components=components)


def _lines(lines: Sequence[str]) -> Iterator[_Entry]:
    """Lines "deb [OPTION=VALUE ...] URI SUITE COMPONENT...": sources.list(5)."""
    for line in lines:
        text = line.partition("#")[0].strip()
        match = re.fullmatch(
            r"deb\s+(?:\[(?P<options>[^]]*)\]\s*)?(?P<uri>\S+)(?P<rest>\s.*)?", text
        )
        if match:
            words = (word.partition("=") for word in (match["options"] or "").split())
            options = {name.lower(): value for name, _, value in words}
            rest = (match["rest"] or "").split()
            yield match["uri"], options.get("signed-by") or None, tuple(rest[:1]), tuple(rest[1:])


def _stanzas(lines: Sequence[str]) -> Iterator[_Entry]:
    """Stanzas of "Field: value" with blank lines between: the deb822 form of sources.list(5)."""
    text = "\n".join(line.rstrip() for line in lines if not line.startswith("#"))
    for stanza in text.split("\n\n"):
        fields = re.findall(r"^([^\s:]+)\s*:(.*(?:\n[ \t].*)*)", stanza, re.MULTILINE)
        yield from _stanza({name.lower(): value.strip() for name, value in fields})


def _stanza(stanza: dict[str, str]) -> Iterator[_Entry]:
    enabled = stanza.get("enabled", "yes").lower() not in ("no", "false", "0", "off", "without")
    if not enabled or "deb" not in stanza.get("types", "").split():
        return
    key = stanza.get("signed-by", "").strip() or None
    if key and "-----BEGIN PGP" in key:
        key = "embedded key"
    suites, components = (tuple(stanza.get(x, "").split()) for x in ("suites", "components"))
    for uri in stanza.get("uris", "").split():
        yield uri, key, suites, components
