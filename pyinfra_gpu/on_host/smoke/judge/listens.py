"""Who could connect to what a test listened at: torchrun's stores, the meeting, the ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

ITSELF, GROUP, ANYONE = "itself", "group", "anyone"
"""Its own processes alone; also the hosts of its group; whoever reaches this machine."""
_LONGEST = 300


@dataclass(frozen=True)
class Listens:
    """What the test found out about itself by trying. `how`: by what, or why not, in words."""

    to: str
    how: str

    def as_json(self) -> dict[str, str]:
        """Return it as it is written down."""
        return asdict(self)


def read(told: Mapping[str, Any] | None) -> Listens | None:
    """Return what a host tells of itself; a limit that is not known is none.

    Raises KeyError, TypeError or AttributeError where it is something else.
    """
    if told is None:
        return None
    to, how = told["to"], str(told["how"])[:_LONGEST]
    return Listens(to if to in (ITSELF, GROUP) else ANYONE, how or "it does not say why")
