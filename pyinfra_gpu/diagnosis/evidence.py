"""What a failed smoke test leaves, as something that the diagnosis explains. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyinfra_gpu.diagnosis.host_facts import HostFacts
from pyinfra_gpu.diagnosis.log import Source
from pyinfra_gpu.diagnosis.matcher import diagnose

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record


def explained(verdict: Mapping[str, Any], record: Record, evidence: str = "") -> dict[str, Any]:
    """Return a failed test's verdict with its `diagnosis` (what `pyinfra-gpu explain` prints).

    + record: of the host, whose facts decide between two readings of a message
    + evidence: the file that the test left; without it, the lines in the verdict have to do
    """
    sources = of_file(evidence, ended=ended_by_the_test(verdict)) or of_verdict(verdict)
    return {**verdict, "diagnosis": diagnose(sources, HostFacts.of(record)).as_json()}


def ended_by_the_test(verdict: Mapping[str, Any]) -> bool:
    """Tell whether the test itself ended its ranks: at a deadline, or for what it had measured.

    torchrun's log then ends with a signal that came from the test, and names no cause.
    """
    failed = verdict.get("failed")
    late = isinstance(failed, Mapping) and "(the deadline)" in str(failed.get("sentence"))
    return late or measured_by_the_test(verdict)


def measured_by_the_test(verdict: Mapping[str, Any]) -> bool:
    """Tell whether what failed is a figure that the test measured, and not the end of a rank."""
    failed, checks = verdict.get("failed"), verdict.get("checks")
    if not isinstance(failed, Mapping) or not isinstance(checks, list):
        return False
    return any(
        isinstance(check, Mapping)
        and check.get("id") == failed.get("id")
        and (check.get("measured") is not None or check.get("expected") is not None)
        for check in checks
    )


def of_verdict(verdict: Mapping[str, Any]) -> list[Source]:
    """Return the last lines that the verdict holds."""
    failed = verdict.get("failed")
    if not isinstance(failed, Mapping) or not isinstance(failed.get("tail"), list):
        return []
    text = "\n".join(map(str, failed["tail"]))
    return [Source(text, _rank(failed))] if text.strip() else []


def of_file(text: str, *, ended: bool = False) -> list[Source]:
    """Read the evidence file; what is not as it should be, half a file for instance, is nothing.

    + ended: whether the test itself ended torchrun, whose own log is then left out
    """
    try:
        entries = json.loads(text)
    except ValueError:
        return []
    return [
        Source(entry["text"], _rank(entry))
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and isinstance(entry.get("text"), str)
        if not (ended and entry.get("source") == "torchrun")
    ]


def _rank(entry: Mapping[str, Any]) -> int | None:
    rank = entry.get("rank")
    return rank if isinstance(rank, int) else None
