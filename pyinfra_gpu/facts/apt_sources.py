"""Where apt may take NVIDIA's packages from, in both forms of source lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown

_NVIDIA = ("nvidia", "cuda/repos")


@dataclass(frozen=True, kw_only=True, slots=True)
class AptSource(Jsonable):
    """One enabled source of binary packages.

    + file: the list that names it; uri: as written there
    + signed_by: the keyring file, or "embedded key"; None where any key that apt trusts will do
    """

    file: str
    uri: str
    signed_by: str | None


def parse(fields: Fields) -> tuple[AptSource, ...] | Unknown:
    """Return the sources that name NVIDIA's repository or are the declared one.

    The probe sends every line of apt's lists as "FILE:LINE" and the declared URL, whose
    placeholders `{distro}` and `{arch}` stand for any word.
    """
    rows, declared = fields.items("apt.source_line"), fields.text("apt.repository")
    if isinstance(rows, Unknown):
        return rows
    if isinstance(declared, Unknown):
        return declared
    files: dict[str, list[str]] = {}
    for row in rows:
        name, colon, line = row.partition(":")
        if not colon:
            return Unknown(f"the probe's line {row[:80]!r} is incomplete")
        files.setdefault(name, []).append(line)
    found = []
    for name, lines in files.items():
        reader = _stanzas if name.endswith(".sources") else _lines
        found += [
            AptSource(file=name, uri=uri, signed_by=key)
            for uri, key in reader(lines)
            if _matters(name, uri, declared)
        ]
    return tuple(found)


def _matters(file: str, uri: str, declared: str | None) -> bool:
    text = f"{file.rpartition('/')[2]} {uri}".lower()
    if any(word in text for word in _NVIDIA):
        return True
    if not declared:
        return False
    parts = re.split(r"\{distro\}|\{arch\}", declared.rstrip("/"))
    return re.fullmatch("[^/]+".join(map(re.escape, parts)), uri.rstrip("/")) is not None


def _lines(lines: list[str]) -> Iterator[tuple[str, str | None]]:
    """Lines "deb [OPTION=VALUE ...] URI SUITE COMPONENT...": sources.list(5)."""
    for line in lines:
        text = line.partition("#")[0].strip()
        match = re.fullmatch(r"deb\s+(?:\[(?P<options>[^]]*)\]\s*)?(?P<uri>\S+)(?:\s.*)?", text)
        if match:
            words = (word.partition("=") for word in (match["options"] or "").split())
            options = {name.lower(): value for name, _, value in words}
            yield match["uri"], options.get("signed-by") or None


def _stanzas(lines: list[str]) -> Iterator[tuple[str, str | None]]:
    """Stanzas of "Field: value" with blank lines between: the deb822 form of sources.list(5)."""
    stanza: dict[str, str] = {}
    name = ""
    for line in (*lines, ""):
        if line.startswith("#"):
            continue
        if not line.strip():
            yield from _stanza(stanza)
            stanza = {}
        elif line[0] in " \t" and name:
            stanza[name] = f"{stanza.get(name, '')}\n{line.strip()}"
        else:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            stanza[name] = value.strip()


def _stanza(stanza: dict[str, str]) -> Iterator[tuple[str, str | None]]:
    enabled = stanza.get("enabled", "yes").lower() not in ("no", "false", "0", "off", "without")
    if not enabled or "deb" not in stanza.get("types", "").split():
        return
    key = stanza.get("signed-by", "").strip() or None
    if key and "-----BEGIN PGP" in key:
        key = "embedded key"
    for uri in stanza.get("uris", "").split():
        yield uri, key
