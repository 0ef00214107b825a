"""Whole documents as the smoke test writes them, for tests to change."""

from __future__ import annotations

import json
from typing import Any

from pyinfra_gpu.diagnosis.explained import Explained
from pyinfra_gpu.facts.verdict import Verdict
from pyinfra_gpu.on_host.diagnosis.causes import Step
from pyinfra_gpu.on_host.diagnosis.explain import Answer, Found
from pyinfra_gpu.on_host.smoke.document import VERSION, Metrics

FINISHED = "2026-11-21T08:12:45Z"


def check(check_id: str, status: str = "pass", **changes: Any) -> dict[str, Any]:
    """One check."""
    values = {"seconds": 0.1, "detail": "", "rank": None}
    return {"id": check_id, "status": status, **values, **changes}


def failed(check_id: str, sentence: str, **changes: Any) -> dict[str, Any]:
    """What a verdict says of the check that failed first."""
    more = {"rank": None, "log": None, "tail": [], "host": "ws1"}
    return {"id": check_id, "sentence": sentence, **more, **changes}


def rank(number: int, **changes: Any) -> dict[str, Any]:
    """One rank that did all its work."""
    ended = {"finished": True, "last_step": "done"}
    return {"rank": number, "host": "ws1", **ended, "log": None, **changes}


def gpu(index: int, **changes: Any) -> dict[str, Any]:
    """One GPU."""
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "NVIDIA GeForce RTX 5090",
        "memory_mib": 32607,
        "driver": "580.95.05",
        **changes,
    }


def metrics(**changes: Any) -> dict[str, Any]:
    """The figures of a run that came nowhere."""
    return {**json.loads(json.dumps(Metrics().as_json())), **changes}


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
        "software": {
            "python": "3.12.3",
            "torch": "2.14.1",
            "torch_path": "/opt/venv/torch",
            "kernel": "6.8",
        },
        "listens": {"to": "itself", "how": "in a network namespace of its own"},
        "gpus": [],
        "ranks": [rank(0), rank(1)],
        "checks": [check("S4.training_step")],
        "metrics": metrics(),
        "failed": None,
        "evidence": None,
        "rerun_command": "/venv/bin/python smoke_test.pyz --mode rehearsal-cpu",
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
            "ranks": [rank(n, host=host) for n, host in enumerate(("ws1", "ws1", "ws2", "ws2"))],
            "checks": [check("S6.hosts")],
            "rerun_command": "",
            "logs": "/opt/x",
            **changes,
        }
    )


def across_stamp(**changes: Any) -> dict[str, Any]:
    """What a stamp says of such a step."""
    return {
        "hosts": {"ws1": "a", "ws2": "b"},
        "mode": "gpu",
        **changes,
    }


def stamp(**changes: Any) -> dict[str, Any]:
    """The stamp of a pass."""
    values = {"fingerprint": "c0ffee", "status": "pass", "mode": "rehearsal-cpu"}
    more = {"finished": FINISHED, "verdict": None, "across": None, "driver": None}
    return {**values, **more, **changes}


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
