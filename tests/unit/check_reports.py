"""Made-up reports of dry runs, as `pyinfra_gpu.report` writes them, for the tests of `check`."""

from __future__ import annotations

from typing import Any

UPGRADE = {
    "when": "2026-11-21T06:12:03",
    "by": "/usr/bin/unattended-upgrade",
    "change": "libcuda1 580.95.05-1 -> 580.105.08-1",
}


def stage(name: str, **changes: Any) -> dict[str, Any]:
    """One stage of a host; without changes it found what is declared."""
    return {
        "stage": name,
        "found": ["as declared"],
        "changed": [],
        "warnings": [],
        "deviations": [],
        "problem": None,
        "unreadable": False,
        "seconds": 0.04,
        **changes,
    }


def deviation(name: str, effect: str = "repair", **changes: Any) -> dict[str, Any]:
    """One deviation as JSON."""
    return {
        "id": name,
        "found": f"{name} is wrong",
        "expected": f"{name} is right",
        "effect": effect,
        "action": f"mends {name}",
        "command": None,
        "packages": [],
        "since": None,
        **changes,
    }


def deviating(name: str, *deviations: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A stage with deviations, as `converge.note` journals them."""
    acted = [each["action"] for each in deviations if each["effect"] in ("repair", "restart")]
    found = [each["found"] for each in deviations]
    values = {"found": found, "changed": acted, "deviations": list(deviations), **changes}
    return stage(name, **values)


def host(*stages: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """One host; without stages it is as declared."""
    return {
        "status": "as declared",
        "complete": True,
        "rehearsal": False,
        "stages": list(stages) or [stage("preflight"), stage("driver"), stage("smoke")],
        "smoke": None,
        "last_smoke": None,
        "facts": {},
        "history": [],
        **changes,
    }


RESTART = deviating("driver", deviation("driver.module-differs", "restart", since=UPGRADE))
SMOKE_OWED = stage("smoke", found=["since it passed, changed: driver"], changed=["test of 2 ranks"])
UNREACHABLE = host(status="unreachable", complete=False) | {"stages": []}
