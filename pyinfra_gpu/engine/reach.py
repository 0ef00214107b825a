"""Who can connect to what a command on a host listens at: limited by root, where there is root.

The commands run as the owner all the same. What was limited is not told by root: the command finds
it out by trying (`on_host/smoke/listening.py`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Any

from pyinfra_gpu.drift.layout import owner_name
from pyinfra_gpu.engine.privilege import as_owner, as_root
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import program
from pyinfra_gpu.on_host.smoke.listening import ALLOWED_LOOPBACK
from pyinfra_gpu.spec import HostSpec

_MOST = 64
"""Addresses of one host: who tells more is not believed to need them."""


def limited(
    spec: HostSpec, record: Record, command: str, seconds: float, addresses: Iterable[str] = ()
) -> tuple[str, dict[str, Any]]:
    """Return a command of the owner's, and as whom to run it, such that all it starts is ended
    after so many seconds, and only the host itself and `addresses` can connect to it.

    + command: POSIX shell; every value in it must already be quoted
    """
    if not _limits(spec):
        return command, as_owner(spec, record)
    allowed = " ".join(dict.fromkeys([*ALLOWED_LOOPBACK, *addresses]))
    words = (owner_name(spec, record), command, str(round(seconds)), allowed)
    return program("reach/group.sh", *words, uses=("reach/as_owner.sh",)), as_root(spec)


def addresses(words: Iterable[str]) -> list[str]:
    """Return those of a host's words that are addresses, as a limit can name them.

    A link-local one says nothing of whose it is: on each link there may be another.
    """
    found = []
    for word in words:
        try:
            address = ipaddress.ip_address(word)
        except ValueError:
            continue
        nobodys = address.is_unspecified or address.is_multicast
        if not (nobodys or address.is_link_local or address.is_loopback):
            found.append(str(address))
    return found[:_MOST]


def _limits(spec: HostSpec) -> bool:
    return spec.privilege != "none" and spec.smoke.limit_network
