"""What may be typed next of the words that choose hosts, as the inventory declares it."""

from __future__ import annotations

import argparse

from pyinfra_gpu.report.check.running import Request, known


def hosts(words: argparse.Namespace) -> list[str]:
    """Return the inventory's groups and hosts; none where it cannot be read."""
    groups, all_hosts = known(Request(inventory=typed(words).inventory))
    return [*groups, *all_hosts]


def typed(words: argparse.Namespace) -> Request:
    """Return the request of a command line that is not whole yet."""
    return Request(
        inventory=str(getattr(words, "inventory", "")),
        limit=tuple(getattr(words, "limit", None) or ()),
        exclude=tuple(getattr(words, "exclude", None) or ()),
        data=tuple(getattr(words, "data", None) or ()),
    )
