"""Findings as plain data, the same in the run's report and in what `check` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyinfra_gpu.drift.history import as_since

if TYPE_CHECKING:
    from pyinfra_gpu.drift.finding import Finding


def finding_as_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as plain data, with what the package manager's log knows of it."""
    return {
        "id": finding.id.value,
        "found": finding.found,
        "expected": finding.expected,
        "effect": finding.effect,
        "action": finding.action,
        "command": finding.command,
        "since": as_since(finding.since),
    }
