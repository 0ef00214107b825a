"""The checks of a process that imports torch, on the facts of S1, and of a good end."""

from __future__ import annotations

from collections.abc import Callable

from .check import Check, Expected, Facts, Finding


def _located(facts: Facts, _: Expected) -> Finding:
    """Decide before any other process starts what `import torch` would find."""
    location = facts[0]["torch_location"]
    wanted = f"{location['packages']}/torch"
    if location["found"] is None:
        detail = f"{location['python']} finds no torch, expected it in {location['packages']}"
        return Finding(False, None, wanted, detail)
    if location["found"] != wanted:
        blame = ", remove PYTHONPATH" if location["by_pythonpath"] else ""
        detail = f"import torch would take {location['found']}, expected {wanted}{blame}"
        return Finding(False, location["found"], wanted, detail)
    return Finding(True, wanted, wanted, f"torch {location['version']}")


def torch_imported(noun: str) -> Callable[[Facts, Expected], Finding]:
    """Decide whether each process (`noun` in the sentence) imported the torch that was found."""

    def decide(facts: Facts, expected: Expected) -> Finding:
        wanted = {"torch": expected.torch.version, "torch_path": expected.torch.found}
        for number, fact in facts.items():
            path = fact["identity"]["torch_path"].rpartition("/")[0]
            measured = {"torch": fact["identity"]["torch"], "torch_path": path}
            if measured != wanted:
                detail = f"{noun} {number} imported torch {measured['torch']} from {path}"
                return Finding(False, measured, wanted, detail, number)
        return Finding(True, wanted, wanted, f"torch {expected.torch.version}")

    return decide


def ended(facts: Facts, _: Expected) -> Finding:
    """Decide whether the starter and all it started came to a good end."""
    ended = facts[0]["ended"]
    if ended["code"] or ended["unfinished"]:
        detail = f"exit code {ended['code']}, not finished: {ended['unfinished']}"
        return Finding(False, ended["code"], 0, detail)
    return Finding(True, 0, 0, "exit code 0")


SINGLE_CHECKS: tuple[Check, ...] = (
    Check("S1.torch", ("torch_location",), _located),
    Check("S1.import", ("identity",), torch_imported("process"), each=True),
)
SINGLE_FINISHED = Check("S3.finished", ("ended",), ended)
