"""The order of Debian's package versions."""

from __future__ import annotations

import re

_LONGEST_EPOCH = 9  # digits


def compare(left: str, right: str) -> int:
    """Return -1, 0 or 1, as dpkg orders two versions: deb-version(7)."""
    (left_epoch, left_rest), (right_epoch, right_rest) = _epoch(left), _epoch(right)
    if left_epoch != right_epoch:
        return -1 if left_epoch < right_epoch else 1
    for one, other in zip(_revision(left_rest), _revision(right_rest), strict=True):
        order = _parts(one, other)
        if order:
            return order
    return 0


def _epoch(version: str) -> tuple[int, str]:
    epoch, colon, rest = version.partition(":")
    known = colon and epoch.isascii() and epoch.isdigit() and len(epoch) <= _LONGEST_EPOCH
    return (int(epoch), rest) if known else (0, version)


def _revision(version: str) -> tuple[str, str]:
    upstream, dash, revision = version.rpartition("-")
    return (upstream, revision) if dash else (version, "")


def _parts(left: str, right: str) -> int:
    """Compare text and numbers by turns, from the left."""
    while left or right:
        texts = [re.match(r"[^0-9]*", side) for side in (left, right)]
        one, other = (match[0] if match else "" for match in texts)
        left, right = left[len(one) :], right[len(other) :]
        for place in range(max(len(one), len(other))):
            ranks = [_rank(text[place : place + 1]) for text in (one, other)]
            if ranks[0] != ranks[1]:
                return -1 if ranks[0] < ranks[1] else 1
        numbers = [re.match(r"[0-9]*", side) for side in (left, right)]
        first, second = (match[0] if match else "" for match in numbers)
        left, right = left[len(first) :], right[len(second) :]
        # As numbers, however many digits somebody gave them: the longer one is the larger one.
        sizes = [(len(digits), digits) for digits in (first.lstrip("0"), second.lstrip("0"))]
        if sizes[0] != sizes[1]:
            return -1 if sizes[0] < sizes[1] else 1
    return 0


def _rank(character: str) -> int:
    """A tilde comes before the end, the end before letters, letters before all else."""
    if character == "~":
        return -1
    if not character:
        return 0
    return ord(character) if character.isalpha() else ord(character) + 256
