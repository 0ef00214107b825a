"""Failed runs that nobody has taken up again: a newer run must not hide them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import rundir

_KEPT_S = 7 * 86400.0
_WRONG = ("failed", "lost")


def unresolved(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the runs that failed or were lost in the last seven days, the oldest first.

    Left out are a try, one that has been resumed, which is failed no longer, and one whose preset
    has been begun again since.

    + documents: of all runs, the oldest first
    """
    since = rundir.later(-_KEPT_S)
    found = []
    for number, document in enumerate(documents):
        ended = _ended(document)
        again = (_repeats(later, document, ended) for later in documents[number + 1 :])
        if ended > since and not document.get("trial") and not any(again):
            found.append(str(document["run"]))
    return found


def _ended(document: Mapping[str, Any]) -> str:
    """Return when a run went wrong; empty for one that did not."""
    attempts = document.get("attempts")
    if not attempts or document["state"] != "ended" or attempts[-1]["outcome"] not in _WRONG:
        return ""
    return str(attempts[-1].get("ended") or "")


def _repeats(later: Mapping[str, Any], failed: Mapping[str, Any], ended: str) -> bool:
    """Tell whether a run was begun when another one had failed, and does the same again."""
    same = later.get("like") == failed["run"] or later.get("preset") == failed.get("preset")
    return same and not later.get("trial") and str(later.get("created", "")) > ended
