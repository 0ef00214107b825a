"""S5 on GPU hosts: what the test has left, in the kernel's log and on the GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..judge.check import Check, Expected, Facts, Finding
from . import throttle

_GROWN_MIB = 1024
"""More than what a driver keeps for itself after a first use."""


def _warn(measured: Any, wanted: Any, detail: str) -> Finding:
    return Finding(True, measured, wanted, detail, status="warn")


def _xids(facts: Facts, _: Expected) -> Finding:
    events = facts[0]["xids"]
    if events is None:
        return Finding(True, None, [], "the kernel's log cannot be read", status="skip")
    for serious in (True, False):
        for event in events:
            if event["serious"] == serious:
                name = f"Xid {event['number']}" if event["kind"] == "xid" else event["kind"].upper()
                detail = f"{name} on {event['pci']}: {event['text']}; {event['advice']}"
                if serious:
                    return Finding(False, events, [], detail)
                return _warn(events, [], detail)
    return Finding(True, [], [], "no new GPU error in the kernel's log")


def _throttle(facts: Facts, expected: Expected) -> Finding:
    """What slowed the GPUs down, seen under load by rank 0 or, failing that, right afterwards."""
    after = facts[0]["gpu_after"]
    masks = {str(gpu["index"]): gpu["throttle_mask"] for gpu in after["gpus"]}
    now = {index: throttle.reasons(mask) for index, mask in masks.items() if mask is not None}
    loaded = {index: gpu["throttle"] for index, gpu in (after["loaded"] or {}).items()}
    told = {index: names for index, names in loaded.items() if names is not None}
    tested = [str(index) for index in range(max(expected.gpus, 1))]
    seen = {index: names for index, names in {**now, **told}.items() if index in tested}
    if not seen:
        detail = "nvidia-smi does not tell why clocks are low"
        return Finding(True, None, [], detail, status="skip")
    for index, names in seen.items():
        if bad := throttle.harmful(names):
            name, meaning = next(iter(bad.items()))
            return _warn(seen, [], f"GPU {index} is slowed down ({name}): {meaning}")
    return Finding(True, seen, [], "under load" if told else "right after the test")


def _leftovers(facts: Facts, expected: Expected) -> Finding:
    after = facts[0]["gpu_after"]
    measured = {"processes": after["own_processes"], "shm": after["shm_left"]}
    if after["error"]:
        return Finding(False, measured, None, f"nvidia-smi, after the test: {after['error']}")
    if len(after["gpus"]) < after["expected_gpus"]:
        lost = after["expected_gpus"] - len(after["gpus"])
        return Finding(False, len(after["gpus"]), after["expected_gpus"], f"{lost} GPUs are lost")
    if after["own_processes"]:
        pids = ", ".join(str(process["pid"]) for process in after["own_processes"])
        return Finding(False, measured, [], f"processes of this test still hold a GPU: {pids}")
    if after["shm_left"]:
        detail = f"{', '.join(after['shm_left'][:3])} of this test is still in shared memory"
        return _warn(measured, [], detail)
    if grown := _grown(after, expected):
        return _warn(grown, 0, f"memory in use has grown on GPUs {', '.join(grown)}")
    return Finding(True, measured, None, "no process, file or memory is left")


def _grown(after: Mapping[str, Any], expected: Expected) -> dict[str, int]:
    """Return GPU index -> MiB more in use than before, where that is much."""
    before = {gpu["uuid"]: gpu["memory_used_mib"] for gpu in (expected.gpu_host or {})["gpus"]}
    grown = {}
    for gpu in after["gpus"]:
        used, earlier = gpu["memory_used_mib"], before.get(gpu["uuid"])
        if used is not None and earlier is not None and used - earlier > _GROWN_MIB:
            grown[str(gpu["index"])] = used - earlier
    return grown


AFTER_CHECKS: tuple[Check, ...] = (
    Check("S5.xids", ("xids",), _xids),
    Check("S5.throttle", ("gpu_after",), _throttle),
    Check("S5.gpu_leftovers", ("gpu_after",), _leftovers),
)
