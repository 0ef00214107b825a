"""S0 on GPU hosts: what nvidia-smi says before the test."""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Mapping, Sequence
from typing import Any

from . import nvidia_smi
from .check import Fact, Facts, Want, fail, unknown, warn
from .nvidia_smi import Row, Run, integer

KINDS_FILE = "kinds.json"
"""Beside this file, in the bundle: what sound GPUs show, see `stacks.bundle.gpu_kinds`."""
_NEEDED_MIB = 6 * 1024
"""Free GPU memory for one process: 1 GiB pattern, 2 GiB to copy, 256 MiB reduced, CUDA itself."""
_DESKTOP = "C+G"
"""A type of process that draws and may compute: a desktop's programs, not somebody's work."""
_FIELDS = (
    *("index", "uuid", "name", "memory.total", "memory.used"),
    *("mig.mode.current", "ecc.errors.uncorrected.volatile.total", "remapped_rows.failure"),
    *("pcie.link.gen.max", "pcie.link.width.max"),
)
_PROCESS = re.compile(r"Process ID\s*: (\d+)\s+Type\s*: (\S+)\s+Name\s*: (.*)")


def kinds() -> Sequence[Mapping[str, Any]]:
    """Return what this bundle knows of GPUs; raises OSError where it was packed without."""
    found: list[Mapping[str, Any]] = json.loads(pkgutil.get_data(__package__, KINDS_FILE) or "[]")
    return found


def kind_of(name: str, kinds: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return what is expected of the GPU nvidia-smi calls `name`, nothing if it is not known."""
    return next((each for each in kinds if re.search(each["pattern"], name)), {})


def read(run: Run = nvidia_smi.run) -> dict[str, Any]:
    """Return the fact `gpu_host`. Never raises: what could not be read is None or an error text.

    + run: how nvidia-smi is called
    """
    found, error = nvidia_smi.read(run, _FIELDS)
    using = run(["nvidia-smi", "-q", "-d", "PIDS"]) if found else None
    return {
        "gpus": [gpu for gpu in found if gpu["index"]],
        "error": error,
        # [pid, type, name] of each process with a CUDA context
        "processes": [each for each in _PROCESS.findall(using.text) if "C" in each[1]]
        if using and using.ok
        else None,
    }


def tested(want: Want) -> dict[int, Row]:
    """Return the GPUs that this test uses, as nvidia-smi lists them, by index."""
    gpus = {integer(gpu["index"]) or 0: gpu for gpu in want.gpu_host.get("gpus", [])}
    return {index: gpu for index, gpu in gpus.items() if index < max(want.gpus, 1)}


# -- S0


def listed(mine: Fact, want: Want, _: Facts) -> str:
    """Judge whether nvidia-smi lists the GPUs that are declared, in a state to compute."""
    names = [gpu["name"] or "unnamed GPU" for gpu in mine["gpu_host"]["gpus"]]
    counted = f"nvidia-smi lists {len(names)} GPUs"
    if error := mine["gpu_host"]["error"]:
        fail(f"nvidia-smi: {error}")
    if len(names) < want.gpus or not names:
        fail(f"{counted}, {want.gpus} are declared")
    for index, gpu in tested(want).items():
        if sentence := _unfit(gpu, want.ranks):
            fail(f"GPU {index} {sentence}", index)
    if len(names) > want.gpus:
        warn(f"{counted}, only {want.gpus} declared and tested")
    return ", ".join(sorted(set(names)))


def _unfit(gpu: Row, ranks: int) -> str | None:
    total, used = integer(gpu["memory.total"]), integer(gpu["memory.used"])
    if gpu["mig.mode.current"] == "Enabled" and ranks > 1:
        at = f"nvidia-smi -i {gpu['index']} -mig 0"
        return f"is divided (MIG), and ranks need whole GPUs: {at}"
    if gpu["remapped_rows.failure"] == "Yes":
        return "has failed rows of memory that cannot be replaced: exchange it"
    if count := integer(gpu["ecc.errors.uncorrected.volatile.total"]):
        return f"had {count} uncorrected memory errors since its last reset: reset it"
    if total is not None and used is not None and total - used < _NEEDED_MIB:
        return f"has {total - used} MiB of {total} MiB free, the test needs {_NEEDED_MIB}"
    return None


def processes(mine: Fact, _: Want, __: Facts) -> str:
    """Judge who else uses the GPUs: somebody's work and this test would disturb each other."""
    found = mine["gpu_host"]["processes"]
    if found is None:
        warn("it cannot be read who else uses the GPUs")
    names = ", ".join(f"{name} (pid {pid})" for pid, _, name in found[:3])
    if any(kind != _DESKTOP for _, kind, _ in found):
        unknown(f"GPUs are in use by {names}: try again when that has ended")
    if found:
        warn(f"the GPUs also draw for {names}")
    return "nobody else uses the GPUs"
