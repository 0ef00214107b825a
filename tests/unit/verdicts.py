"""Whole documents as the smoke test writes them, for tests to change."""

from __future__ import annotations

import json
from typing import Any

from pyinfra_gpu.diagnosis.explained import Explained
from pyinfra_gpu.facts.verdict import Verdict
from pyinfra_gpu.on_host.diagnosis.causes import Step
from pyinfra_gpu.on_host.diagnosis.explain import Answer, Found
from pyinfra_gpu.on_host.smoke.document import VERSION

FINISHED = "2026-11-21T08:12:45Z"


def check(check_id: str, status: str = "pass", **changes: Any) -> dict[str, Any]:
    """One check."""
    values = {"seconds": 0.1, "detail": "", "rank": None}
    return {"id": check_id, "status": status, **values, **changes}


def failed(check_id: str, sentence: str, **changes: Any) -> dict[str, Any]:
    """What a verdict says of the check that failed first."""
    more = {"rank": None, "tail": []}
    return {"id": check_id, "sentence": sentence, **more, **changes}


GPU = "NVIDIA GeForce RTX 5090"


def document(**changes: Any) -> dict[str, Any]:
    """A verdict that the schema takes: a pass on the CPU."""
    return {
        "schema_version": VERSION,
        "mode": "rehearsal-cpu",
        "status": "pass",
        "proof": False,
        "host": "ws1",
        "fingerprint": "c0ffee",
        "finished": FINISHED,
        "duration_s": 18.9,
        "torch": "2.14.1",
        "others_kept_out": True,
        "gpus": [],
        "ranks": 2,
        "checks": [check("S4.training_step")],
        "allreduce": [],
        "failed": None,
        "rerun_command": "/venv/bin/python smoke_test.pyz '{}'",
        "logs": "/opt/pyinfra-gpu/smoke/verdict.json.logs",
        "hosts": [],
        **changes,
    }


def across(**changes: Any) -> dict[str, Any]:
    """One host's verdict of a step that two hosts trained together."""
    return document(
        **{
            "mode": "gpu",
            "proof": True,
            "fingerprint": "r1",
            "hosts": ["ws1", "ws2"],
            "finished": "2026-11-21T08:13:45Z",
            "duration_s": 40.0,
            "ranks": 4,
            "checks": [check("S6.hosts")],
            "rerun_command": "",
            "logs": "/opt/x",
            **changes,
        }
    )


def stamp(**changes: Any) -> dict[str, Any]:
    """The stamp of a pass."""
    values = {"fingerprint": "c0ffee", "mode": "rehearsal-cpu", "verdict": None, "across": []}
    return {**values, "driver": None, **changes}


def verdict(**changes: Any) -> Verdict:
    """The type of `document`."""
    found = Verdict.read(json.dumps(document(**changes)))
    assert isinstance(found, Verdict), found
    return found


def explained(document: dict[str, Any], diagnosis: Answer | None = None) -> Explained:
    """A document's type, with why its test failed."""
    read = Verdict.read(json.dumps(document))
    assert isinstance(read, Verdict), read
    return Explained(read, diagnosis)


def found(**changes: Any) -> Found:
    """What a log shows."""
    values: dict[str, Any] = {
        "name": "nccl-shm-full",
        "cause": "/dev/shm is full. NCCL puts its buffers there.",
        "short": "/dev/shm is full.",
        "line": "Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)",
        "source": "rank 1",
        "rank": 1,
        "fix": (Step("See what is free", "df -h /dev/shm"),),
        "fields": {},
    }
    return Found(**{**values, **changes})


def answer(*causes: Found, unexplained: str = "") -> Answer:
    """What `explain` says of a log of a run that failed."""
    return Answer(found=causes, unexplained=unexplained, failed=True)
