"""Many hosts in few lines: those with the same answer are one, and a text is said once."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from pyinfra_gpu.host_names import brief
from pyinfra_gpu.text import one_line

T = TypeVar("T")


def alike(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Return the items in groups of the same key, in the order in which the first of each came."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def counted(names: Sequence[str], *, rehearsal: bool = False) -> str:
    """Return how a group of hosts begins: "ws1 (rehearsal) ", "23 hosts"."""
    label = " (rehearsal)" if rehearsal else ""
    return f"{one_line(names[0])}{label} " if len(names) == 1 else f"{len(names)} hosts{label}"


def listed(names: Sequence[str]) -> str:
    """Return how a group of hosts ends: with all its names, where `counted` did not say it."""
    return f": {one_line(brief(names))}" if len(names) > 1 else ""


def unnamed(text: str, host: str) -> str:
    """Return a sentence about a host without its name at the beginning, to compare with others'."""
    return re.sub(rf"(^|; ){re.escape(host)}: ", r"\1", text)


def said_once(texts: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Return each text once with the hosts it is about, in the order in which they came.

    + texts: (host, text), where the text may begin with the host's name
    """
    said: dict[str, list[str]] = {}
    for host, text in texts:
        hosts = said.setdefault(unnamed(text, host), [])
        if host not in hosts:
            hosts.append(host)
    return list(said.items())
