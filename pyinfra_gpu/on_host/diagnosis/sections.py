"""Headings between what several hosts or ranks printed: whose lines stand below them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

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


# Of ansible and pssh, before what each host answered.
_OF_TOOLS = re.compile(
    r"(?P<ansible>[\w.-]{1,80}) \| (?:FAILED|CHANGED|SUCCESS)!? \| rc=\d{1,3} >>$"
    r"|\[\d{1,4}\] \d\d:\d\d:\d\d \[(?:FAILURE|SUCCESS)\] (?P<pssh>[\w.@-]{1,80})\b"
)
_RULE = re.compile(r"[-=]{5,80}$")  # dshbak and clush draw one above and below the name
_ALONE = re.compile(rf"(?:\[{_KIND}[ _]?\w{{1,40}}\]|{_KIND}[ ]?\w{{1,40}}:)$", re.IGNORECASE)


@dataclass(frozen=True)
class Heading:
    """Who wrote what stands below a heading: a rank, or whatever name it has."""

    rank: int | None
    label: str


NOBODY = Heading(None, "")
_LONGEST = 200  # characters of a heading


def headings(texts: Sequence[str]) -> Mapping[str, Heading]:
    """Return the lines that are headings, and whose lines stand below; none if there is only one.

    One heading alone divides nothing: it is a title.
    """
    found: dict[str, Heading] = {}
    for text, below in pairwise([*texts, ""]):
        if len(text) <= _LONGEST and text not in found and (name := _name(text.rstrip(), below)):
            rank = _RANK.search(name)
            found[text] = Heading(int(rank["rank"]) if rank else None, "" if rank else name)
    return found if len(set(found.values())) > 1 else {}


def _name(text: str, below: str) -> str:
    """Return whose lines the heading announces; empty if it is none."""
    if file := _FILE.match(text) or _OF_TOOLS.match(text):
        return next(name for name in file.groups() if name)
    if _ALONE.match(text):
        return text.strip("[]:")
    drawn = _DRAWN.match(text)
    ruled = text.rstrip(":") if _RULE.match(below.rstrip()) else ""
    host = _HOST.match(drawn["name"] if drawn else ruled)
    return (host["host"] or host["other"]) if host else ""
