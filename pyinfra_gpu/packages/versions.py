"""The order of Debian's package versions."""

from __future__ import annotations

import re

_Part = list[tuple[list[int], tuple[int, str]]]


def order(version: str) -> tuple[tuple[int, str], _Part, _Part]:
    """Return what versions are sorted by, as dpkg orders them: deb-version(7)."""
    epoch, colon, rest = version.partition(":")
    if not colon or not re.fullmatch("[0-9]{1,9}", epoch):
        epoch, rest = "", version
    upstream, dash, revision = rest.rpartition("-")
    if not dash:
        upstream, revision = rest, ""
    return _number(epoch), _part(upstream), _part(revision)


def _part(text: str) -> _Part:
    """Split into text and numbers by turns, from the left; what is left out counts as 0."""
    pieces = re.findall(r"([^0-9]*)([0-9]*)", text)
    part = [([*map(_rank, letters), 0], _number(digits)) for letters, digits in pieces]
    while part and part[-1] == ([0], _number("")):
        part.pop()
    return [*part, ([0], _number(""))]


def _number(digits: str) -> tuple[int, str]:
    """Order numbers of any length: the one with more digits is the larger one."""
    digits = digits.lstrip("0")
    return len(digits), digits


def _rank(character: str) -> int:
    """A tilde comes before the end, which is 0; then letters, then all else."""
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256
