"""Headings between what several hosts or ranks printed: whose lines stand below them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# `tail` and `head` of several files; and what people put above the log of each host.
_FILE = re.compile(r"==> (?P<name>\S{1,160}) <==$")
_DRAWN = re.compile(
    r"(?:={2,40}|-{2,40}|#{1,10}|\*{2,40}|>{2,6})[ ](?P<name>[^\n=#*<>]{1,80}?):?"
    r"(?:[ ](?:={2,40}|-{2,40}|#{1,10}|\*{2,40}|<{2,6}))?$"
)
_KIND = r"(?:host|node|rank|worker|machine|server|pod|terminal|log of|logs of|output of|on|from)"
# One word that looks like a host's, or one that says of itself that it is.
_HOST = re.compile(
    rf"(?:{_KIND}[ :#]{{1,2}})?(?P<host>[A-Za-z][\w.-]{{0,60}}[\d.-][\w.-]{{0,60}})"
    rf"(?:[ ]\((?:rank|node|host|worker)[ _]?\d{{1,5}}\))?$"
    rf"|(?P<other>{_KIND}[ :#_]{{0,2}}\w{{1,40}})$",
    re.IGNORECASE,
)
_RANK = re.compile(r"(?:^|[\W_])rank[ _=#-]{0,2}(?P<rank>\d{1,5})(?!\d)", re.IGNORECASE)


@dataclass(frozen=True)
class Heading:
    """Who wrote what stands below a heading: a rank, or whatever name it has."""

    rank: int | None
    label: str


NOBODY = Heading(None, "")


def headings(texts: Sequence[str]) -> Mapping[str, Heading]:
    """Return the lines that are headings, and whose lines stand below; none if there is only one.

    One heading alone divides nothing: it is a title.
    """
    found: dict[str, Heading] = {}
    for text in texts:
        if text[:1] in "=-#*>" and text not in found and (name := _name(text[:200].rstrip())):
            rank = _RANK.search(name)
            found[text] = Heading(int(rank["rank"]) if rank else None, "" if rank else name)
    return found if len(set(found.values())) > 1 else {}


def _name(text: str) -> str:
    """Return whose lines the heading announces; empty if it is none."""
    if file := _FILE.match(text):
        return file["name"]
    drawn = _DRAWN.match(text)
    host = _HOST.match(drawn["name"]) if drawn else None
    return (host["host"] or host["other"]) if host else ""
